"""Where a Protobuf schema comes from: texts, files, descriptor sets, a registry; and what is refused."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from forebay.errors import DeniedOptionError, MissingOptionError, OptionValueError
from forebay.formats import protobuf_schema
from forebay.formats.protobuf_compile import MAX_BYTES, ProtocError, compile_texts
from forebay.formats.protobuf_files import FilesError, add_files, complete
from forebay.formats.protobuf_schema import find_message, given_files, message_at, registered_files, settled

ORDER = 'syntax = "proto3"; package shop; message Order { int64 id = 1; message Line { int32 n = 1; } }'
TWO = 'syntax = "proto3"; message A { message C {} } message B { message C {} }'
USER = 'syntax = "proto3"; import "parts/order.proto"; import "google/protobuf/timestamp.proto"; '
USER += "message User { shop.Order order = 1; google.protobuf.Timestamp at = 2; }"


def files(serialized: bytes) -> list[FileDescriptorProto]:
    return list(FileDescriptorSet.FromString(serialized).file)


def names(serialized: bytes) -> list[str]:
    return [file.name for file in files(serialized)]


def encoded(serialized: bytes) -> str:
    return base64.b64encode(serialized).decode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "schemas" / "parts").mkdir(parents=True)
    (tmp_path / "schemas" / "user.proto").write_text(USER)
    (tmp_path / "schemas" / "parts" / "order.proto").write_text(ORDER)
    (tmp_path / "outside.proto").write_text('syntax = "proto3"; message Outside {}')
    return tmp_path / "schemas"


# -- texts and files ---------------------------------------------------------------------------------


def test_a_text_is_compiled_with_the_well_known_types_in_it() -> None:
    text = 'syntax = "proto3"; import "google/protobuf/any.proto"; message M { google.protobuf.Any a = 1; }'
    assert names(given_files({"protobuf.schema": text})) == [
        "google/protobuf/any.proto",
        "protobuf.schema.proto",
    ]


def test_a_file_finds_its_imports_in_its_own_folder(folder: Path) -> None:
    found = given_files({"protobuf.schema.file": str(folder / "user.proto")})
    assert names(found)[-1] == "user.proto"
    assert set(names(found)) == {"parts/order.proto", "google/protobuf/timestamp.proto", "user.proto"}


def test_a_folder_may_be_given_to_texts_and_to_files(folder: Path) -> None:
    text = given_files({"protobuf.schema": USER, "protobuf.schema.folder": str(folder)})
    assert "parts/order.proto" in names(text)
    path = str(folder / "parts" / "order.proto")
    file = given_files({"protobuf.schema.file": path, "protobuf.schema.folder": str(folder)})
    assert names(file) == ["parts/order.proto"]


def test_workers_need_neither_the_files_nor_the_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROTOS", str(folder / "user.proto"))
    given = {"topic": "t", "protobuf.schema.file": "${PROTOS}", "protobuf.schema.folder": str(folder)}
    sent = settled(given)
    assert set(sent) == {"topic", "protobuf.descriptor", "protobuf.message"}
    assert sent["protobuf.message"] == "User"
    (folder / "user.proto").unlink()
    assert find_message(given_files(sent), sent).full_name == "User"
    assert settled(sent) == sent


def test_options_without_a_schema_are_left_as_they_are() -> None:
    given = {"schema.registry.url": "http://r", "protobuf.message": "M"}
    assert settled(given) == given


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('syntax = "proto3";\nmessage M {\n  Foo x = 1;\n}', r'protobuf\.schema\.proto:3:3: "Foo" is not defined'),
        ('syntax = "proto3"; import "none.proto";', "none.proto: File not found"),
        ("message", r"protobuf\.schema\.proto:1:"),
        ('syntax = "proto3";', "the schema has no message"),
        ('import "../outside.proto";', "outside.proto"),
        ('import "/etc/passwd";', "passwd"),
        ("message M { " + "message M { " * 5000, "too deep|nest|recursion"),
        ("\0", r"protobuf\.schema\.proto:1:"),
    ],
)  # fmt: skip
def test_protoc_s_complaints_are_shown_with_line_and_column(text: str, complaint: str) -> None:
    options = {"protobuf.schema": text}
    with pytest.raises((OptionValueError, MissingOptionError), match=complaint) as refused:
        find_message(given_files(options), options)
    assert refused.value.option == "protobuf.schema"
    assert "/tmp" not in refused.value.message
    assert len(refused.value.message) < 1000


def test_only_what_is_inside_of_the_folder_is_read(folder: Path) -> None:
    outside = str(folder.parent / "outside.proto")
    with pytest.raises(DeniedOptionError, match="not inside of the folder"):
        given_files({"protobuf.schema.file": outside, "protobuf.schema.folder": str(folder)})
    (folder / "link.proto").symlink_to(outside)
    text = 'syntax = "proto3"; import "link.proto"; message M {}'
    with pytest.raises(DeniedOptionError, match="not inside of the folder"):
        given_files({"protobuf.schema": text, "protobuf.schema.folder": str(folder)})
    # protoc itself refuses to walk up, and sees nothing but what was copied for it.
    for name in ("../outside.proto", "/" + outside):
        text = f'syntax = "proto3"; import "{name}"; message M {{}}'
        with pytest.raises((OptionValueError, DeniedOptionError)):
            given_files({"protobuf.schema": text, "protobuf.schema.folder": str(folder)})


def test_a_path_that_is_no_such_file_is_named(folder: Path) -> None:
    for options, reason in [
        ({"protobuf.schema.file": "none.proto"}, "is not a file"),
        ({"protobuf.schema.file": str(folder)}, "is not a file"),
        ({"protobuf.descriptor.file": "none.desc"}, "is not a file"),
        ({"protobuf.schema": ORDER, "protobuf.schema.folder": "none"}, "is not a folder"),
        ({"protobuf.schema.file": __file__}, r"is not a \.proto file"),
    ]:
        with pytest.raises(OptionValueError, match=reason):
            given_files(options)
    (folder / "large.proto").write_text(" " * (MAX_BYTES + 1))
    with pytest.raises(OptionValueError, match="more than 4 MiB"):
        given_files({"protobuf.schema.file": str(folder / "large.proto")})
    (folder / "latin.proto").write_bytes(b"// \xe9")
    with pytest.raises(OptionValueError, match="not UTF-8"):
        given_files({"protobuf.schema.file": str(folder / "latin.proto")})


def test_names_that_are_no_proto_files_are_not_written_anywhere() -> None:
    for name in ("../a.proto", "/a.proto", "a/../b.proto", "a.py", "-o.proto", "a b.proto", ".proto"):
        with pytest.raises(ProtocError, match="not the name"):
            compile_texts({name: ORDER}, name)
    with pytest.raises(ProtocError, match="4 MiB"):
        compile_texts({"a.proto": " " * (MAX_BYTES + 1)}, "a.proto")


# -- descriptor sets ---------------------------------------------------------------------------------


def test_a_descriptor_set_is_taken_in_base64_and_as_a_file(tmp_path: Path) -> None:
    made = compile_texts({"order.proto": ORDER}, "order.proto")
    (tmp_path / "order.desc").write_bytes(made)
    assert given_files({"protobuf.descriptor": encoded(made)}) == made
    assert given_files({"protobuf.descriptor.file": str(tmp_path / "order.desc")}) == made


def test_a_descriptor_set_may_leave_out_well_known_types_and_be_in_any_order() -> None:
    parts = {"parts/order.proto": ORDER, "user.proto": USER}
    user, order = sorted(files(compile_texts(parts, "user.proto")), key=lambda file: file.name)[-1:0:-1]
    given = FileDescriptorSet(file=[user, order]).SerializeToString()
    found = given_files({"protobuf.descriptor": encoded(given)})
    assert names(found).index("google/protobuf/timestamp.proto") < names(found).index("user.proto")
    assert find_message(found, {"protobuf.message": "User"}).full_name == "User"


@pytest.mark.parametrize("text", ["?", "AAAA", encoded(b"\xff" * 20), encoded(b"")])
def test_what_is_no_descriptor_set_is_refused(text: str) -> None:
    with pytest.raises((OptionValueError, MissingOptionError), match=r"protobuf\.(descriptor|schema)"):
        given_files({"protobuf.descriptor": text})


def test_files_that_import_what_is_not_there_or_themselves_are_refused() -> None:
    with pytest.raises(FilesError, match=r"a\.proto imports b\.proto, which is not among them"):
        complete([FileDescriptorProto(name="a.proto", dependency=["b.proto"])])
    a = FileDescriptorProto(name="a.proto", dependency=["b.proto"])
    b = FileDescriptorProto(name="b.proto", dependency=["a.proto"])
    with pytest.raises(FilesError, match="imports itself"):
        complete([a, b])
    chain = [FileDescriptorProto(name=f"{i}.proto", dependency=[f"{i + 1}.proto"]) for i in range(999)]
    with pytest.raises(FilesError):
        complete(chain)
    with pytest.raises(FilesError, match="1001 files"):
        complete([FileDescriptorProto(name=f"{i}.proto") for i in range(1001)])


def test_a_set_that_contradicts_itself_is_refused() -> None:
    file = FileDescriptorProto(name="a.proto")
    file.message_type.add(name="M").field.add(name="x", number=1, type=11, type_name=".None", label=1)
    with pytest.raises(OptionValueError, match="no Protobuf schema"):
        find_message(complete([file]), {"protobuf.descriptor": "x"})


# -- which message -----------------------------------------------------------------------------------


def test_the_only_message_need_not_be_named() -> None:
    assert find_message(given_files({"protobuf.schema": ORDER}), {}).full_name == "shop.Order"


def test_imports_do_not_count_among_the_messages(folder: Path) -> None:
    options = {"protobuf.schema.file": str(folder / "user.proto")}
    assert find_message(given_files(options), options).full_name == "User"
    options["protobuf.message"] = "shop.Order"
    assert find_message(given_files(options), options).full_name == "shop.Order"


def test_a_message_is_named_by_its_full_name_or_the_end_of_it() -> None:
    made = given_files({"protobuf.schema": ORDER})
    for name in ("shop.Order.Line", "Order.Line", "Line"):
        assert find_message(made, {"protobuf.message": name}).full_name == "shop.Order.Line"


def test_one_of_several_messages_must_be_named_and_exist() -> None:
    made = given_files({"protobuf.schema": TWO})
    with pytest.raises(MissingOptionError, match="has 2 messages") as refused:
        find_message(made, {})
    assert "one of A, B" in refused.value.remedy
    with pytest.raises(MissingOptionError, match="2 messages 'C'"):
        find_message(made, {"protobuf.message": "C"})
    assert find_message(made, {"protobuf.message": "A.C"}).full_name == "A.C"
    with pytest.raises(OptionValueError, match="no message 'Ordre'") as refused:
        find_message(given_files({"protobuf.schema": ORDER}), {"protobuf.message": "Ordre"})
    assert "did you mean 'shop.Order'?" in refused.value.remedy


def test_nothing_given_says_what_to_give() -> None:
    with pytest.raises(MissingOptionError, match=r"'protobuf\.schema'"):
        given_files({})


# -- what a registry has -----------------------------------------------------------------------------


def serialized(text: str, name: str, **others: str) -> str:
    """A FileDescriptorProto in base64, as Confluent's serializers register it."""
    made = compile_texts({name: text, **others}, name)
    return encoded(files(made)[-1].SerializeToString())


@pytest.mark.parametrize("main_as_text", [True, False])
@pytest.mark.parametrize("reference_as_text", [True, False])
def test_a_registry_s_schema_and_references_are_text_or_compiled(
    main_as_text: bool, reference_as_text: bool
) -> None:
    texts = {"parts/order.proto": ORDER}
    main = USER if main_as_text else serialized(USER, "user.proto", **texts)
    reference = ORDER if reference_as_text else serialized(ORDER, "elsewhere.proto")
    made = registered_files(main, {"parts/order.proto": reference})
    loaded = add_files(made)
    message = message_at(loaded, [0])
    assert message is not None
    assert message.full_name == "User"
    assert message.fields_by_name["order"].message_type.full_name == "shop.Order"


def test_a_registry_s_schema_may_import_what_confluent_bundles() -> None:
    text = 'syntax = "proto3"; import "confluent/meta.proto"; import "confluent/type/decimal.proto"; '
    text += 'message M { confluent.type.Decimal d = 1 [(confluent.field_meta) = { doc: "x" }]; }'
    message = message_at(add_files(registered_files(text, {})), [0])
    assert message is not None
    assert message.fields_by_name["d"].message_type.full_name == "confluent.type.Decimal"


def test_a_schema_that_does_not_compile_is_a_value_error() -> None:
    for text, references in [("messag", {}), (USER, {}), (USER, {"../order.proto": ORDER})]:
        with pytest.raises(ValueError, match=r"proto"):
            registered_files(text, references)


def test_message_indexes_lead_into_nested_messages() -> None:
    loaded = add_files(registered_files(TWO, {}))
    found = [message_at(loaded, path) for path in ([0], [1], [1, 0], [2], [0, 1], [0, 0, 0], [2**31 - 1])]
    assert [None if each is None else each.full_name for each in found] == [
        "A",
        "B",
        "B.C",
        None,
        None,
        None,
        None,
    ]


def test_compiling_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    protobuf_schema.compile_texts({"a.proto": ORDER + "// once"}, "a.proto")
    with pytest.raises(ProtocError):
        protobuf_schema.compile_texts({"a.proto": "oh no"}, "a.proto")
    assert list(tmp_path.iterdir()) == []
