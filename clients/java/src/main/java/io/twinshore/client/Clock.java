package io.twinshore.client;

import java.util.function.LongSupplier;

/**
 * Nanoseconds on a clock that runs on while the machine sleeps, as leases ask for. Java's own stands still then, on
 * Linux at least. The clock that people read does not: where it has come further than Java's, the machine has slept, or
 * somebody has set it forward, and a lease that ends too soon does no harm. Where it was set back it says nothing.
 */
final class Clock {
    /** So much may lie between the two clocks' ticks, or be drawn out by whoever keeps the one right. */
    private static final long SLACK = Following.SECOND / 10;
    private static final Clock OURS = new Clock(System::nanoTime, System::currentTimeMillis);

    private final LongSupplier nanos, wallMs;
    private long ahead, slept;

    Clock(LongSupplier nanos, LongSupplier wallMs) {
        this.nanos = nanos;
        this.wallMs = wallMs;
        this.ahead = wallMs.getAsLong() * 1_000_000 - nanos.getAsLong();
    }

    static long now() {
        return OURS.read();
    }

    synchronized long read() {
        long here = nanos.getAsLong();
        long found = wallMs.getAsLong() * 1_000_000 - here;
        if (found > ahead + SLACK) {
            slept += found - ahead;
        }
        if (Math.abs(found - ahead) > SLACK) {
            ahead = found;
        }
        return here + slept;
    }
}
