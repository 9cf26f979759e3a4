"""Read /metrics as Prometheus does."""

from urllib.request import Request, urlopen

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


def scrape(url: str, accept: str = "") -> tuple[str, str]:
    """The text and its content type."""
    request = Request(f"{url}/metrics", headers={"Accept": accept} if accept else {})
    with urlopen(request, timeout=30) as answer:
        return answer.read().decode(), answer.headers["content-type"]


def samples(text: str) -> list[Sample]:
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def value(text: str, name: str, **labels: str) -> float:
    """The one sample with this name and these labels."""
    found = [s.value for s in samples(text) if s.name == name and s.labels == labels]
    assert len(found) == 1, f"{name}{labels}: {found}"
    return found[0]
