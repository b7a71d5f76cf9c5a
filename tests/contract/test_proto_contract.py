"""The contract keeps its promises about shape: optional fields, enum zeros, one terminal event."""

from hotline.v1 import (
    admin_pb2,
    conversation_pb2,
    error_pb2,
    feature_pb2,
    generation_pb2,
    inference_pb2,
    model_pb2,
    openai_pb2,
    sampling_pb2,
    session_pb2,
    tokenizer_pb2,
    worker_pb2,
)

from services.runtime.sampling_ranges import SAMPLING_RANGES

FILES = (
    admin_pb2,
    conversation_pb2,
    error_pb2,
    feature_pb2,
    generation_pb2,
    inference_pb2,
    model_pb2,
    openai_pb2,
    sampling_pb2,
    session_pb2,
    tokenizer_pb2,
    worker_pb2,
)


def test_every_scalar_sampling_field_knows_whether_it_was_set():
    for field in sampling_pb2.SamplingParameters.DESCRIPTOR.fields:
        if not field.is_repeated:
            assert field.has_presence, field.name


def test_the_zero_of_every_enum_means_not_set():
    for file in FILES:
        for enum in file.DESCRIPTOR.enum_types_by_name.values():
            assert enum.values_by_number[0].name.endswith("_UNSPECIFIED"), enum.full_name


def test_a_generation_has_exactly_two_kinds_of_terminal_event():
    [event] = generation_pb2.GenerationEvent.DESCRIPTOR.oneofs
    terminal = {"finished", "failed"}
    assert terminal <= {field.name for field in event.fields}


def test_token_ids_are_packed():
    for message in (
        worker_pb2.WorkerGenerateRequest,
        worker_pb2.WorkerTokens,
        tokenizer_pb2.RenderResponse,
    ):
        names = [n for n in message.DESCRIPTOR.fields_by_name if n.endswith("token_ids")]
        assert names
        assert all(message.DESCRIPTOR.fields_by_name[name].is_packed for name in names)


def test_public_and_internal_services_are_those_of_the_design():
    services = {
        service.name: set(service.methods_by_name)
        for file in FILES
        for service in file.DESCRIPTOR.services_by_name.values()
    }
    assert {
        "Generate",
        "GeneratePaced",
        "Resume",
        "Cancel",
        "CountTokens",
        "Tokenize",
        "Detokenise",
    } == services["InferenceService"]
    assert {
        "CreateSession",
        "GetSession",
        "ListSessions",
        "TouchSession",
        "ClearSession",
        "DeleteSession",
    } == services["SessionService"]
    assert services["ModelService"] == {"ListModels", "GetModel"}
    assert {"Generate", "GenerateMany", "Abort", "PutFeatures", "GetStatus"} == services[
        "WorkerService"
    ]
    assert {
        "Render",
        "PushFeatures",
        "Detokenise",
        "Tokenize",
        "DecodeTokens",
        "GetTokenizerStatus",
    } == services["TokenizerService"]
    assert set(services) == {
        "AdminService",
        "InferenceService",
        "ModelService",
        "OpenAIService",
        "SessionService",
        "TokenizerService",
        "WorkerService",
    }


def test_the_table_of_ranges_has_every_number_among_the_sampling_fields():
    field_types = sampling_pb2.SamplingParameters.DESCRIPTOR.fields
    numbers = {
        field.name
        for field in field_types
        if not field.is_repeated and field.type not in (field.TYPE_BOOL, field.TYPE_MESSAGE)
    }
    assert set(SAMPLING_RANGES) == numbers
