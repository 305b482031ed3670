package statedir

import (
	"os"
	"testing"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// inMemoryDir is a directory as STATE_DIR should be, where there is one.
func inMemoryDir(b *testing.B) string {
	dir, err := os.MkdirTemp("/dev/shm", "locksidecar")
	if err != nil {
		return b.TempDir()
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func benchDir(b *testing.B) *Dir {
	d, _ := at(inMemoryDir(b)).open(b)
	if err := d.Write(nil, locker.Floor{}); err != nil {
		b.Fatal(err)
	}
	return d
}

// What one lock that comes and goes costs: five records, the first, the second
// and the fourth of which are waited for.
func BenchmarkALockThatComesAndGoes(b *testing.B) {
	d := benchDir(b)
	r := held(1)
	phases := []locker.Phase{locker.PhaseAsking, locker.PhaseGranted, locker.PhaseDelivered, locker.PhaseReleasing, locker.PhaseOver}
	b.ReportAllocs()
	for b.Loop() {
		r.ID++
		r.Fence++
		for _, r.Phase = range phases {
			if err := d.Write([]locker.Record{r}, locker.Floor{Highest: r.Fence}); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// What the renewal of 10,000 locks costs, in batches as the watchdog sends
// them. The file is written anew every now and then meanwhile.
func BenchmarkTenThousandRenewals(b *testing.B) {
	d := benchDir(b)
	const locks, batch = 10_000, 250
	records := make([]locker.Record, locks)
	for i := range records {
		records[i] = held(locker.GrantID(i + 1))
	}
	b.ReportAllocs()
	for b.Loop() {
		for i := 0; i < locks; i += batch {
			if err := d.Write(records[i:i+batch], locker.Floor{Highest: 1}); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(d.size)/(1<<20), "MiB")
}

// What the one write costs that writes the file of 10,000 locks anew, since it
// holds up whoever waits for a record then.
func BenchmarkWritingTenThousandLocksAnew(b *testing.B) {
	d := benchDir(b)
	records := make([]locker.Record, 10_000)
	for i := range records {
		records[i] = held(locker.GrantID(i + 1))
	}
	if err := d.Write(records, locker.Floor{Highest: 1}); err != nil {
		b.Fatal(err)
	}
	d.pen.text.Reset()
	d.spans = nil
	for b.Loop() {
		if err := d.rewrite(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadingTenThousandLocks(b *testing.B) {
	dir := inMemoryDir(b)
	records := make([]locker.Record, 10_000)
	for i := range records {
		records[i] = held(locker.GrantID(i + 1))
	}
	leave(b, dir, records...)
	for b.Loop() {
		d, saved, err := Open(at(dir).Config)
		if err != nil || len(saved.Records) != len(records) {
			b.Fatal(err)
		}
		die(d)
	}
}
