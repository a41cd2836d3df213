"""Makes a wheel of the programs: wheel.py PROGRAMS VERSION OUT. `pip install` puts both into the folder of scripts.

Only the standard library is used. The files have no times, so equal programs make an equal wheel.
"""

import base64
import hashlib
import pathlib
import platform
import sys
import zipfile

PROGRAMS = ("apportion", "apportion-agent")
REPOSITORY = pathlib.Path(__file__).resolve().parent.parent


def metadata(version):
    """The file METADATA: name, version, licence, and the README as the long text."""
    head = [
        "Metadata-Version: 2.1",
        "Name: apportion",
        f"Version: {version}",
        "Summary: Plans machine-learning inference pipelines and serves them",
        "License: Apache-2.0",
        "Requires-Python: >=3.8",
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(head) + "\n\n" + (REPOSITORY / "README.md").read_text(encoding="utf-8")


def main():
    """Writes the wheel, and prints its name."""
    programs, version, out = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    tag = f"py3-none-linux_{platform.machine()}"
    info = f"apportion-{version}.dist-info"
    files = [(f"apportion-{version}.data/scripts/{name}", (programs / name).read_bytes(), 0o755) for name in PROGRAMS]
    wheel = f"Wheel-Version: 1.0\nGenerator: apportion\nRoot-Is-Purelib: false\nTag: {tag}\n"
    texts = [("METADATA", metadata(version)), ("WHEEL", wheel), ("LICENSE", (REPOSITORY / "LICENSE").read_text())]
    files += [(f"{info}/{name}", text.encode(), 0o644) for name, text in texts]
    digest = lambda data: base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    record = [f"{name},sha256={digest(data)},{len(data)}" for name, data, _ in files] + [f"{info}/RECORD,,"]
    files.append((f"{info}/RECORD", ("\n".join(record) + "\n").encode(), 0o644))
    path = out / f"apportion-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data, mode in files:
            member = zipfile.ZipInfo(name)
            member.compress_type = zipfile.ZIP_DEFLATED
            # A regular file with these rights.
            member.external_attr = (0o100000 | mode) << 16
            archive.writestr(member, data)
    print(path)


if __name__ == "__main__":
    main()
