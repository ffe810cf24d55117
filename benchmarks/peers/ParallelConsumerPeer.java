import com.sun.management.OperatingSystemMXBean;
import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Handles records with Confluent's Parallel Consumer, case after case.
 *
 * A line of standard input is "servers topic group records wait-ms order workers"; the answer is the wall and CPU
 * seconds from the first record that is handled to the last one.
 */
public final class ParallelConsumerPeer {
    private static final OperatingSystemMXBean SYSTEM =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8");
        System.setOut(System.err);
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            answers.println(handle(line.split(" ")));
        }
        System.exit(0);
    }

    private static String handle(String[] words) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[0]);
        settings.put("group.id", words[2]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        long records = Long.parseLong(words[3]);
        long waitMs = Long.parseLong(words[4]);
        ParallelStreamProcessor<byte[], byte[]> processor = ParallelStreamProcessor.createEosStreamProcessor(
                ParallelConsumerOptions.<byte[], byte[]>builder()
                        .ordering(words[5].equals("key") ? ProcessingOrder.KEY : ProcessingOrder.UNORDERED)
                        .maxConcurrency(Integer.parseInt(words[6]))
                        .consumer(consumer)
                        .build());
        AtomicLong begun = new AtomicLong();
        AtomicLong ended = new AtomicLong();
        long[] clocks = new long[4];
        CountDownLatch last = new CountDownLatch(1);
        processor.subscribe(List.of(words[1]));
        processor.poll(context -> {
            if (begun.getAndIncrement() == 0) {
                clocks[0] = System.nanoTime();
                clocks[1] = SYSTEM.getProcessCpuTime();
            }
            if (waitMs > 0) {
                try {
                    Thread.sleep(waitMs);
                } catch (InterruptedException interrupted) {
                    Thread.currentThread().interrupt();
                }
            }
            if (ended.incrementAndGet() == records) {
                clocks[2] = System.nanoTime();
                clocks[3] = SYSTEM.getProcessCpuTime();
                last.countDown();
            }
        });
        last.await();
        processor.closeDontDrainFirst();
        return String.format(Locale.ROOT, "%.6f %.6f", (clocks[2] - clocks[0]) / 1e9, (clocks[3] - clocks[1]) / 1e9);
    }
}
