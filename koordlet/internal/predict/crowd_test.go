// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package predict

import (
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/predict"
)

// A node of 300 pods whose figures are spread as widely as they can be, so that a model has as many buckets as there are.
const crowd = 300

// lessons trains n minutes from at, with another pod in the place of every tenth at each hour.
func lessons(set *predict.Set, draw *rand.Rand, at predict.Wall, n int) predict.Wall {
	spread := func(low, high float64) unit.Measured[float64] {
		return unit.Got(low * math.Pow(high/low, draw.Float64()))
	}
	for i := range n {
		in := predict.Training{Node: predict.Usage{CPU: unit.Got(1000.0), Memory: unit.Got(1000.0 * gib)}, Pods: make([]predict.PodUsage, crowd)}
		for p := range in.Pods {
			life := 0
			if p%10 == 0 {
				life = int(at / predict.Wall(unit.Minute) / 60)
			}
			in.Pods[p] = predict.PodUsage{
				UID: fmt.Sprintf("%08d-0000-4000-8000-%012d", p, life), Priority: protocol.PriorityBatch, QoS: protocol.QoSBE,
				Usage: predict.Usage{CPU: spread(0.01, 100), Memory: spread(1<<20, 100*gib)},
			}
		}
		set.Train(at, in)
		if i%60 == 59 {
			set.Collect(at)
		}
		at += predict.Wall(unit.Minute)
	}
	return at
}

// The checkpoint of 300 pods, some of which come and go, is one file that does not grow with time, is read back as it was, and is written and
// read within a memory that koordlet has. It is not parallel: what it takes is counted for the whole process.
func TestCheckpointOfManyPods(t *testing.T) {
	const (
		perModel = 4 << 10 // bytes of the file
		// How many times the size of the file is allocated in all, not at once: 7 and 9 when this was written, 11 while it was written as a whole.
		toWrite, toRead = 8, 12
	)
	dir, draw := t.TempDir(), rand.New(rand.NewPCG(1, 2))
	path := filepath.Join(dir, fileName)
	set := predict.NewSet(predict.Default())
	at := wall(time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC))
	var sizes []int
	var allocated [2]uint64
	for range 3 { // days
		at = lessons(set, draw, at, 24*60)
		want := set.Checkpoints()
		if len(want) > 2*crowd {
			t.Fatalf("%d models of %d pods", len(want), crowd)
		}
		allocated[0] = allocating(func() {
			if err := save(dir, want); err != nil {
				t.Fatal(err)
			}
		})
		var got []predict.Checkpoint
		allocated[1] = allocating(func() {
			var problems []error
			if got, problems = load(dir); len(problems) > 0 {
				t.Fatal(problems)
			}
		})
		if d := cmp.Diff(rounded(t, want), rounded(t, got)); d != "" {
			t.Fatalf("(-kept +read)\n%s", d)
		}
		next := New(Options{Config: predict.Default(), Dir: dir, Now: func() unit.Micros { return 0 }, Wall: func() time.Time { return utc(at) }, Log: slog.New(slog.DiscardHandler)})
		next.restore()
		if d := cmp.Diff(rounded(t, want), rounded(t, next.set.Checkpoints())); d != "" {
			t.Fatalf("(-kept +restored)\n%s", d)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, int(info.Size()))
		if limit := perModel * len(want); sizes[len(sizes)-1] > limit || limit > maxBytes {
			t.Errorf("%d bytes for %d models, want %d at most, and readers take %d", info.Size(), len(want), limit, maxBytes)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Errorf("files %v, %v", files, err)
	}
	t.Logf("%d models: %v bytes after each day; %d KiB are allocated to write and %d to read", set.Len(), sizes, allocated[0]>>10, allocated[1]>>10)
	if last, before := sizes[2], sizes[1]; last > before+before/10 {
		t.Errorf("the file grows: %v", sizes)
	}
	for i, limit := range []int{toWrite, toRead} {
		if allocated[i] > uint64(limit*sizes[2]) {
			t.Errorf("%d bytes are allocated to %s the file of %d", allocated[i], []string{"write", "read"}[i], sizes[2])
		}
	}
}

// allocating is how many bytes something allocates, in all.
func allocating(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
