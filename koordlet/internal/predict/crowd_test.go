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

// The checkpoint of 300 pods, some of which come and go, is one file that does not grow with time and is read back as it was.
func TestCheckpointOfManyPods(t *testing.T) {
	t.Parallel()
	const perModel = 4 << 10 // bytes of the file
	dir, draw := t.TempDir(), rand.New(rand.NewPCG(1, 2))
	path := filepath.Join(dir, fileName)
	set := predict.NewSet(predict.Default())
	at := wall(time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC))
	var sizes []int
	for range 3 { // mornings
		at = lessons(set, draw, at, 6*60)
		want := set.Checkpoints()
		if len(want) > 2*crowd {
			t.Fatalf("%d models of %d pods", len(want), crowd)
		}
		if err := save(dir, want); err != nil {
			t.Fatal(err)
		}
		got, problems := load(dir)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
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
	t.Logf("%d models: %v bytes after each six hours", set.Len(), sizes)
	if last, before := sizes[2], sizes[1]; last > before+before/10 {
		t.Errorf("the file grows: %v", sizes)
	}
}
