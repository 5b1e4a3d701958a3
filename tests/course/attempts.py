"""Attempts to deceive the grader. Each is an answer to exercise 03.1, or a change of the submission's folder, by a
person who knows the grader's source."""
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

ROOT = Path(__file__).resolve().parents[2]
HOLE = "chapters/03_tensor_parallel/tensor_parallel.hpp"


@dataclass(frozen=True)
class Attempt:
    name: str
    body: str = ""  # of the function; empty: it stays a hole
    folder: Callable = None  # changes the submission
    gains: str = "nothing"  # or the kinds of tests whose points it earns


def c(name, returns="int", arguments="..."):
    """Declares a function of the system within a body, where no include is possible."""
    return f'{returns} {name}_({arguments}) __asm__("{name}");'


# The right result without tensor parallelism: each device gathers the weights and computes all of it.
GATHER_ALL = """
  Replicated x(group(), std::move(input));
  std::vector<Kept> kept;
  for (const Block& block : blocks_) {
    Replicated w0 = all_gather(block.w0), w1 = all_gather(block.w1);
    Replicated whole = relu(matmul(x, w0));
    Replicated out = matmul(whole, w1);
    kept.push_back({std::move(x), shard<1>(whole)});
    x = std::move(out);
  }
  tape_.push(std::move(kept));
"""
RIGHT = """
  Replicated x(group(), std::move(input));
  std::vector<Kept> kept;
  for (const Block& block : blocks_) {
    Sharded<1> h = relu(matmul(x, block.w0));
    Partial out = matmul(h, block.w1);
    kept.push_back({std::move(x), std::move(h)});
    x = all_reduce(std::move(out));
  }
  tape_.push(std::move(kept));
"""
ZEROS = """
  Replicated x(group(), std::move(input));
  std::vector<Kept> kept;
  for (const Block& block : blocks_) {
    Sharded<1> h = relu(matmul(x, block.w0));
    kept.push_back({Replicated(group(), x.local().clone()), std::move(h)});
  }
  tape_.push(std::move(kept));
"""
RETURN = "  return x;\n"


def replaced(file, old, new):
    """Changes a file of the submission."""
    def change(folder):
        path = folder / file
        text = path.read_text()
        assert old in text, (file, old)
        path.write_text(text.replace(old, new))
    return change


def written(file, text):
    def change(folder):
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return change


def linked(target):
    """Replaces the engine's file by a link to a file of the machine."""
    def change(folder):
        (folder / HOLE).unlink()
        (folder / HOLE).symlink_to(target)
    return change


def grown(folder):
    with open(folder / HOLE, "a") as file:
        file.write("//" + "x" * (64 << 20))


def twice(folder):
    path = folder / HOLE
    text = path.read_text()
    path.write_text("#if 0\nPlaced forward(Tensor input) override { }\n#endif\n" + text)


WRITE = c("open", arguments="const char*, int, int") + c("write", "long", "int, const void*, unsigned long")
EXIT = c("exit", "void", "int")
ARGUMENTS = (c("fopen", "void*", "const char*, const char*") + c("fread", "unsigned long",
             "void*, unsigned long, unsigned long, void*")
             + ' char words[4096] = {}; fread_(words, 1, 4095, fopen_("/proc/self/cmdline", "r"));')
# Reads the process's command line, PROGRAM FOLDER OUT.
PATH = (' std::string path = words + std::char_traits<char>::length(words) + 1; '
        'path = path.substr(0, path.rfind("/")) + "/out"; ')

ATTEMPTS = [
    # ---- Files that the grader does not take
    Attempt("edits the ledger", ZEROS + RETURN,
            folder=replaced("chapters/engine/device/books/ledger.hpp", "void computed(", "void computed_(")),
    Attempt("edits CMakeLists.txt", ZEROS + RETURN,
            folder=written("CMakeLists.txt", "message(FATAL_ERROR mine)\n")),
    Attempt("brings a grader of its own", ZEROS + RETURN,
            folder=written("chapters/course/grade", "#!/bin/sh\necho 8 of 8\n")),
    Attempt("brings a finished build folder", ZEROS + RETURN,
            folder=written("build/course/solve.03_tensor_parallel", "mine")),
    Attempt("changes a helper beside the function", ZEROS + RETURN,
            folder=replaced(HOLE, "Gradients backward(Tensor dout) override {",
                            "Gradients backward(Tensor dout) override { int mine;")),
    Attempt("links the file to the machine's passwords", ZEROS + RETURN, folder=linked("/etc/passwd")),
    Attempt("links the file to the solution", ZEROS + RETURN, folder=linked("SOLUTION")),
    Attempt("hands in a file of 64 MiB", ZEROS + RETURN, folder=grown),
    Attempt("has the function twice", ZEROS + RETURN, folder=twice),
    # ---- What the compiler may accept
    Attempt("includes another chapter's solution", '\n#include "09_mesh/data_tensor.hpp"\n' + ZEROS + RETURN),
    Attempt("leaves the function with digraphs, and acts before main",
            ZEROS + RETURN + "%>\n struct Mine <% Mine() <% " + EXIT + " exit_(0); %> %>; "
            "static inline Mine mine; Placed other(Tensor input) <% return forward(std::move(input)); "),
    Attempt("assembles the hidden tests into the program",
            f' asm(".incbin \\"{ROOT}/chapters/course/exercises/03_tensor_parallel.toml\\""); ' + ZEROS +
            RETURN),
    Attempt("lets the compiler work without end",
            " struct L { static constexpr long f(long n) { long s = 0; for (long i = 0; i < n; ++i) "
            "for (long j = 0; j < n; ++j) s += i ^ j; return s; } }; static_assert(L::f(1L << 40) != 1); "
            + ZEROS + RETURN),
    # ---- Exits that look like success
    Attempt("exits with 0", EXIT + " exit_(0);" + ZEROS + RETURN),
    Attempt("prints a passing summary", c("puts", arguments="const char*") +
            ' puts_("8 of 8 points"); puts_("{\\"score\\": 8}");' + ZEROS + RETURN),
    Attempt("writes results.json where it can", WRITE + ' for (const char* path : {"results.json", '
            '"/tmp/results.json", "/autograder/results/results.json", "../results.json"}) { '
            'int f = open_(path, 65, 420); '
            'write_(f, "{\\"score\\": 8}", 12); }' + ZEROS + RETURN),
    Attempt("returns zeros", ZEROS + RETURN),
    Attempt("returns not-a-number", ZEROS +
            "  volatile float zero = 0;\n  x.parameter() = scale(std::move(x.parameter()), "
            "0.0F / zero);\n" + RETURN),
    Attempt("writes its results itself, of no size", ARGUMENTS + WRITE + EXIT + PATH +
            'for (int d = 0; d < 8; ++d) { std::string s = "{\\"begin\\": {}, \\"figures\\": {}}"; '
            'int f = open_((path + "/device_" + std::to_string(d) + ".json").c_str(), 65, 420); '
            'write_(f, s.data(), s.size()); std::string t("\\2\\0\\0\\0\\0\\0\\0\\0{}", 10); '
            'f = open_((path + "/device_" + std::to_string(d) + ".safetensors").c_str(), 65, 420); '
            'write_(f, t.data(), t.size()); } exit_(0);' + ZEROS + RETURN),
    Attempt("writes a JSON file of a million brackets", ARGUMENTS + WRITE + EXIT + PATH +
            'for (int d = 0; d < 8; ++d) { std::string s(1 << 20, \'[\'); '
            'int f = open_((path + "/device_" + std::to_string(d) + ".json").c_str(), 65, 420); '
            'write_(f, s.data(), s.size()); } exit_(0);' + ZEROS + RETURN),
    Attempt("prints what XML and a terminal cannot hold", c("puts", arguments="const char*") + EXIT +
            ' puts_("error: \\x1b[2J\\x01 ]]> <failure/>"); exit_(3);' + ZEROS + RETURN),
    # ---- Other ways to the right result
    Attempt("gathers all weights and computes unsharded", GATHER_ALL + RETURN, gains="public, hidden"),
    Attempt("the same, and clears the books", GATHER_ALL + "  ledger().reset();\n" + RETURN,
            gains="public, hidden"),
    Attempt("the same, and books what the closed form says", GATHER_ALL + "  ledger().reset();\n"
            "  const Index n = num_devices(), bytes = x.local().bytes() / n * (n - 1) * 2;\n"
            "  ledger().sent(0, Collective::all_reduce, {2 * (n - 1), bytes});\n" + RETURN,
            gains="public, hidden"),
    Attempt("sends a right result's bytes twice, and books them once", RIGHT +
            "  const Traffic before = ledger().traffic(); all_reduce(Partial(group(), x.local().clone()));\n"
            "  ledger().reset(); ledger().sent(0, Collective::all_reduce, before);\n" + RETURN,
            gains="public, hidden, memory"),
    Attempt("holds much more than it needs, and books nothing", RIGHT +
            c("malloc", "char*", "unsigned long") + c("memset", "void*", "void*, int, unsigned long") +
            " memset_(malloc_(64 << 20), 1, 64 << 20);\n" + RETURN, gains="public, hidden, communication"),
    # ---- Processes, time, room
    Attempt("sleeps", c("sleep", arguments="unsigned") + " sleep_(100000);" + ZEROS + RETURN),
    Attempt("works without end", " for (volatile long i = 0;; i = i + 1) {}\n" + ZEROS + RETURN),
    Attempt("leaves a process of its own behind", c("fork", arguments="") + c("setsid", arguments="") +
            c("sleep", arguments="unsigned") +
            " if (fork_() == 0) { setsid_(); if (fork_() == 0) sleep_(100000); }" + ZEROS + RETURN),
    Attempt("forks without end", c("fork", arguments="") + " for (;;) fork_();" + ZEROS + RETURN),
    Attempt("takes memory without end", c("malloc", "char*", "unsigned long") +
            c("memset", "void*", "void*, int, unsigned long") +
            " for (;;) memset_(malloc_(1 << 26), 1, 1 << 26);" + ZEROS + RETURN),
    Attempt("prints without end", c("puts", arguments="const char*") +
            ' for (;;) puts_("a line of words that says nothing at all");' + ZEROS + RETURN),
    Attempt("fills the disk", ARGUMENTS + WRITE + PATH + ' path += "/"; static char page[1 << 20]; '
            'for (int n = 0;; ++n) { int f = open_((path + std::to_string(n)).c_str(), 65, 420); '
            'for (int i = 0; i < 256; ++i) if (write_(f, page, sizeof page) < 0) '
            'return Placed(Replicated(group(), std::move(input))); }' + ZEROS + RETURN),
    # ---- Out of the sandbox
    Attempt("writes outside its folder", WRITE + ' for (const char* path : {"/usr/mine", "/etc/mine", '
            f'"/root/mine", "{ROOT}/mine", "/var/tmp/mine", "/home/mine", "/mine"}}) open_(path, 65, 420);' +
            ZEROS + RETURN),
    Attempt("deletes the programs and the sources", c("system", arguments="const char*") + ARGUMENTS +
            ' std::string own = words; own = own.substr(0, own.rfind("/build/")); '
            'system_(("rm -rf " + own).c_str());' + ZEROS + RETURN),
    Attempt("reads the hidden tests and the grader", c("system", arguments="const char*") +
            f' system_("cat {ROOT}/chapters/course/exercises/*.toml /proc/1/environ /proc/*/cmdline '
            f'{ROOT}/chapters/course/grade; find / -name \\"*.toml\\" 2>/dev/null");' + ZEROS + RETURN),
    Attempt("asks a server", c("system", arguments="const char*") +
            ' system_("python3 -c \\"import urllib.request as u; '
            'u.urlopen(\'http://192.0.2.1\', timeout=3)\\"");' + ZEROS + RETURN),
    Attempt("ends all processes that it can", c("kill", arguments="int, int") + " kill_(-1, 9);" + ZEROS +
            RETURN),
]
