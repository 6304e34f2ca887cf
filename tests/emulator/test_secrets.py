"""Secrets of tenants on the emulator: versions as the adapter needs them."""

from shared.secretstore.aws import SecretsManager, secret_id


def test_a_version_stays_readable_after_another_was_put(corrected):
    client, place = corrected.client("secretsmanager"), secret_id("acme", "local", "token")
    first = client.create_secret(Name=place, SecretString="first")["VersionId"]
    second = client.put_secret_value(SecretId=place, SecretString="second")["VersionId"]
    secrets = SecretsManager(client, "local")
    assert secrets.version("acme", "token") == second
    assert [secrets.value("acme", "token", version) for version in (first, second)] == ["first", "second"]
