"""A broker that asks who is there: passwords in the clear and under TLS, and TLS alone."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from support import Cluster, numbers

from forebay.devstack.broker import Broker
from forebay.jvm.java import find_java
from forebay.kafka.offsets import KafkaSplit, Range

USER, PASSWORD = "ann", "correct-horse"
RECORDS = 500
_LOGIN = "org.apache.kafka.common.security"


def certificate(store: Path, *, signs_itself: bool = False) -> Path:
    """Make a key in a store, with a certificate for 127.0.0.1; as PEM the certificate of who signed it."""
    keytool = str(Path(find_java().path).with_name("keytool"))
    common = ["-keystore", str(store), "-storetype", "PKCS12", "-storepass", PASSWORD]
    pair = ["-genkeypair", "-keyalg", "EC", "-groupname", "secp256r1", "-validity", "2"]
    pem, name, ca = store.with_suffix(".pem"), ["-ext", "san=ip:127.0.0.1"], ["-ext", "bc=ca:true"]
    if signs_itself:
        commands = [[*pair, "-alias", "broker", "-dname", "CN=broker", *name, *ca]]
    else:
        commands = [
            [*pair, "-alias", "ca", "-dname", "CN=authority", *ca],
            [*pair, "-alias", "broker", "-dname", "CN=broker", *name, "-signer", "ca"],
        ]
    export = ["-exportcert", "-rfc", "-file", str(pem), "-alias", "broker" if signs_itself else "ca"]
    for command in (*commands, export):
        subprocess.run([keytool, *command, *common], check=True, capture_output=True, timeout=60)
    return pem


@contextmanager
def guarded_broker(folder: Path, store: Path, own_store: Path) -> Iterator[Broker]:
    """CLIENT takes PLAIN without TLS, SCRAM takes SCRAM-SHA-256 under TLS, TLS and OWN ask for nothing more."""
    properties = {
        "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,SCRAM:SASL_SSL,TLS:SSL,OWN:SSL,INTERNAL:PLAINTEXT,"
        "CONTROLLER:PLAINTEXT",
        "listener.name.client.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": f"{_LOGIN}.plain.PlainLoginModule required "
        f'user_{USER}="{PASSWORD}";',
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.scram.scram-sha-256.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": PASSWORD,
        "listener.name.own.ssl.keystore.location": str(own_store),
    }
    broker = Broker(folder, properties=properties, listeners=("SCRAM", "TLS", "OWN"))
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def set_scram_password(cluster: Cluster, user: str, password: str) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion(user, info, password.encode())
    cluster.admin.alter_user_scram_credentials([change])[user].result(30)


class Guarded:
    """The broker's topic, and the options of a source for each kind of connection."""

    def __init__(
        self, cluster: Cluster, listeners: dict[str, str], ca: Path, own: Path, other_ca: Path
    ) -> None:
        self.cluster, self.other_ca = cluster, other_ca
        self.topic = cluster.make_topic(2)
        cluster.produce(self.topic, numbers(RECORDS))
        self.split = KafkaSplit(tuple(Range(self.topic, number, 0, RECORDS // 2) for number in range(2)))
        login = {"sasl.username": USER, "sasl.password": PASSWORD}
        tls = {"ssl.ca.location": str(ca)}
        self._kinds = {
            "plain": ("SASL_PLAINTEXT", cluster.bootstrap_servers, login | {"sasl.mechanism": "PLAIN"}),
            "scram": ("SASL_SSL", listeners["SCRAM"], login | tls | {"sasl.mechanism": "SCRAM-SHA-256"}),
            "tls": ("SSL", listeners["TLS"], tls),
            "own": ("SSL", listeners["OWN"], {"ssl.ca.location": str(own)}),
        }

    def options(self, kind: str, **changes: str) -> dict[str, str]:
        protocol, address, client = self._kinds[kind]
        client = client | {key.replace("_", "."): text for key, text in changes.items()}
        return self.cluster.kafka_options(self.topic, bootstrap_servers=address) | {
            f"kafka.{key}": text for key, text in {"security.protocol": protocol, **client}.items()
        }


@contextmanager
def guarded_cluster(folder: Path) -> Iterator[Guarded]:
    ca, other_ca = certificate(folder / "broker.p12"), certificate(folder / "other.p12")
    own = certificate(folder / "own.p12", signs_itself=True)
    with guarded_broker(folder / "broker", folder / "broker.p12", folder / "own.p12") as broker:
        login = {"sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": PASSWORD}
        cluster = Cluster(broker, **{"security.protocol": "SASL_PLAINTEXT"}, **login)
        set_scram_password(cluster, USER, PASSWORD)
        yield Guarded(cluster, broker.listeners, ca, own, other_ca)
