"""The one door to structured questions: parse, build a read, shape answers; holds no logic."""

from triton_backend.answers import answers
from triton_backend.question_parse import Option, Question, QuestionError, as_text, parse_questions
from triton_backend.read_template import ReadPlan, SharedRead, build_read, build_reads

__all__ = [
    "Option",
    "Question",
    "QuestionError",
    "ReadPlan",
    "SharedRead",
    "answers",
    "as_text",
    "build_read",
    "build_reads",
    "parse_questions",
]
