// What kafka-consumer-groups --describe asks, by Kafka's own client: a group's offsets, and where the logs end.
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;

public class GroupLag {
    public static void main(String[] given) throws Exception {
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", given[0]))) {
            var committed = admin.listConsumerGroupOffsets(given[1]).partitionsToOffsetAndMetadata().get();
            var wanted = committed.keySet().stream().collect(Collectors.toMap(each -> each, each -> OffsetSpec.latest()));
            var ends = admin.listOffsets(wanted).all().get();
            var lines = new TreeMap<Integer, String>();
            committed.forEach((partition, offset) -> {
                long end = ends.get(partition).offset();
                lines.put(partition.partition(), offset.offset() + " " + end + " " + (end - offset.offset()));
            });
            lines.forEach((partition, line) -> System.out.println(partition + " " + line));
        }
    }
}
