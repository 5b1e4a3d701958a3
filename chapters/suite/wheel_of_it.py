"""Makes the wheel, by Python's own library alone: pip downloads nothing to build it (PEP 517, PEP 427).

    pip wheel --no-index --no-deps ./chapters/suite
"""
import base64
import hashlib
import re
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = (HERE / "pyproject.toml").read_text("utf-8")


def value(key):
    return re.search(rf'^{key} = "(.*)"$', PROJECT, re.M)[1]


NAME, VERSION = value("name").replace("-", "_"), value("version")
INFO = f"{NAME}-{VERSION}.dist-info"
METADATA = f"""Metadata-Version: 2.1
Name: {value("name")}
Version: {VERSION}
Summary: {value("description")}
License: MIT
Requires-Python: {value("requires-python")}
{"".join(f"Requires-Dist: {name}" for name in re.search(r'dependencies = ."(.*)".', PROJECT)[1].split('", "'))}
Description-Content-Type: text/markdown

{(HERE / "README.md").read_text("utf-8")}"""
WHEEL = "Wheel-Version: 1.0\nGenerator: wheel_of_it\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def entry_points():
    """The tables of scripts and of entry points, as entry_points.txt has them."""
    tables = re.findall(r"^\[project\.(scripts|entry-points\.(\w+))\]\n((?:.+\n)+)", PROJECT, re.M)
    return "".join(f"[{group or 'console_scripts'}]\n" + lines.replace('"', "") for _, group, lines in tables)


def files():
    """{name in the wheel: content}."""
    found = {f"{INFO}/METADATA": METADATA.encode(), f"{INFO}/WHEEL": WHEEL.encode(),
             f"{INFO}/entry_points.txt": entry_points().encode()}
    for path in sorted((HERE / "shardbook_check").rglob("*")):
        if path.is_file() and path.suffix in (".py", ".inc", ".json", ".md"):
            found[path.relative_to(HERE).as_posix()] = path.read_bytes()
    return found


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name, content = f"{NAME}-{VERSION}-py3-none-any.whl", files()
    record = ""
    with zipfile.ZipFile(Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in content.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record += f"{path},sha256={digest},{len(data)}\n"
            wheel.writestr(zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
        wheel.writestr(f"{INFO}/RECORD", record + f"{INFO}/RECORD,,\n")
    return name


def build_sdist(sdist_directory, config_settings=None):
    raise NotImplementedError("there is no source archive: the checkout is the source")


def get_requires_for_build_wheel(config_settings=None):
    return []
