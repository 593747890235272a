"""The generated modules say what the .proto files say: run `make proto` after a change."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet

ROOT: Final = Path(__file__).resolve().parent.parent
PROTOS: Final = sorted((ROOT / "proto").glob("*.proto"))


def generated(proto: Path, suffix: str) -> Path:
    """The one file that was made of it."""
    (found,) = (ROOT / "cluster").rglob(f"{proto.stem}_pb2.{suffix}")
    return found


def message_names(messages: "list[DescriptorProto]") -> set[str]:
    nested = (message_names(list(message.nested_type)) for message in messages)
    return {message.name for message in messages}.union(*nested)


@pytest.mark.parametrize("proto", PROTOS, ids=lambda proto: proto.stem)
def test_generated_modules_are_fresh(proto: Path, tmp_path: Path) -> None:
    """Generated modules have the meaning of their proto files: the text differs with the generator's version."""
    pytest.importorskip("grpc_tools")
    out = tmp_path / "descriptors"
    command = ["-m", "grpc_tools.protoc", "-I", "proto", f"--descriptor_set_out={out}", proto.name]
    subprocess.run([sys.executable, *command], cwd=ROOT, check=True)
    (wanted,) = FileDescriptorSet.FromString(out.read_bytes()).file
    path = generated(proto, "py").relative_to(ROOT)
    module = importlib.import_module(".".join(path.with_suffix("").parts))
    wanted.ClearField("source_code_info")
    found = FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    for descriptor in (wanted, found):
        for message in descriptor.message_type:
            for field in message.field:
                field.ClearField("json_name")
    assert found == wanted
    stub = ast.parse(generated(proto, "pyi").read_text())
    classes = {node.name for node in ast.walk(stub) if isinstance(node, ast.ClassDef)}
    assert message_names(list(wanted.message_type)) <= classes


def test_each_generated_module_has_its_source() -> None:
    modules = {path.name.removesuffix("_pb2.py") for path in (ROOT / "cluster").rglob("*_pb2.py")}
    assert modules == {proto.stem for proto in PROTOS}
