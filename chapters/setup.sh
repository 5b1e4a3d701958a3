# Sourced by chapters/run and tests/run: the packages this project needs, and the build.
# Functions only; the caller has changed to the root of the project.

packages=(g++ cmake ninja-build openmpi-bin libopenmpi-dev libopenblas-dev libxtensor-dev libcli11-dev
  nlohmann-json3-dev libfmt-dev)

# fail CODE MESSAGE
fail() {
  echo "error: $2" >&2
  exit "$1"
}

# Installs what is missing of `packages`, naming it first.
install_packages() {
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    local missing=()
    for tool in cmake ninja mpirun c++; do command -v "$tool" >/dev/null || missing+=("$tool"); done
    [ ${#missing[@]} -eq 0 ] || fail 69 "missing: ${missing[*]} (Debian's names of all that is needed: ${packages[*]})"
    return # CMake names libraries that are missing
  fi
  local missing=()
  for package in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail 69 "missing packages, and no right to install them: ${missing[*]}"
    as_root=(sudo)
  fi
  echo "installing ${missing[*]}"
  local log
  log=$(mktemp)
  if ! { "${as_root[@]}" apt-get update && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    fail 69 "could not install ${missing[*]}"
  fi
  rm -f "$log"
}

# build PRESET FOLDER TARGET CMAKE_OPTIONS...: configures and builds, quietly unless something is wrong.
build() {
  local preset=$1 folder=$2 target=$3
  shift 3
  mkdir -p "$folder"
  [ -f "$folder/build.ninja" ] || echo "building in $folder, a minute or two the first time"
  if ! cmake --preset "$preset" -G Ninja "$@" >"$folder/configure.log" 2>&1; then
    tail -n 30 "$folder/configure.log" >&2
    fail 69 "could not configure: see $folder/configure.log"
  fi
  [ "$preset" != cuda ] || grep -q '^-- cuda: CUDA' "$folder/configure.log" ||
    fail 69 "cuda: expected the CUDA Toolkit, 12 or later, and NCCL, given none that CMake finds"
  if ! cmake --build "$folder" --target "$target" >"$folder/build.log" 2>&1; then
    grep -E -A 5 'error|FAILED' "$folder/build.log" | head -n 40 >&2
    fail 70 "could not build: see $folder/build.log"
  fi
}
