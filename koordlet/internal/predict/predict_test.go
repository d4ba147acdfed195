// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package predict

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/koordlet/internal/window"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/predict"
)

const gib = 1 << 30

var _ Window = (*window.Memory)(nil)

// bench is a node in simulated time: it measures every second and predicts every minute.
type bench struct {
	window *window.Memory
	start  time.Time
	known  atomic.Bool
	node   Node
	// fail are subjects that cannot be measured.
	fail map[sample.Subject]bool
	log  strings.Builder
}

func newBench() *bench {
	b := &bench{window: window.New(window.Options{}), start: time.Now(), fail: map[sample.Subject]bool{}}
	b.known.Store(true)
	b.node = Node{
		Allocatable: predict.Resources{CPU: 16000, Memory: 64 * gib},
		Pods: []predict.Pod{{
			UID: "a", Priority: protocol.PriorityProd, Started: wall(b.start.Add(-48 * time.Hour)),
			Request: predict.Resources{CPU: 4000, Memory: 8 * gib},
		}},
	}
	return b
}

func (b *bench) now() unit.Micros { return unit.Micros(time.Since(b.start).Microseconds()) }

// measure runs until ctx ends.
func (b *bench) measure(ctx context.Context) {
	for tick := time.NewTicker(time.Second); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		var batch []sample.Sample
		add := func(s sample.Subject, cores, bytes float64) {
			if !b.fail[s] {
				batch = append(batch, sample.Sample{Subject: s, Metric: sample.CPUUsage, Value: cores, At: b.now()},
					sample.Sample{Subject: s, Metric: sample.MemoryUsage, Value: bytes, At: b.now()})
			}
		}
		add(sample.OfNode(), 3, 6*gib)
		bytes := 2.0 * gib
		if b.now()/unit.Second%60 == 30 {
			bytes = 4 * gib // for one second of each minute
		}
		add(sample.OfPod("a"), 2, bytes)
		b.window.Append(batch)
	}
}

func (b *bench) predictor(dir string) *Predictor {
	cfg := predict.Default()
	cfg.ColdStart = 0
	return New(Options{
		Config: cfg, Dir: dir, Window: b.window, Node: func() (Node, bool) { return b.node, b.known.Load() }, Now: b.now,
		Log: slog.New(slog.NewTextHandler(&b.log, nil)),
	})
}

// run lives for a while and ends both goroutines.
func (b *bench) run(t *testing.T, p *Predictor, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	go b.measure(ctx)
	if err := p.Run(ctx); err != nil {
		t.Error(err)
	}
	synctest.Wait()
}

func TestTrainsEveryMinuteAndPredicts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		p := b.predictor("")
		if p.Report().Known {
			t.Error("known before the first minute")
		}
		b.run(t, p, 10*time.Minute+time.Second)
		got := p.Report()
		if !got.Known || got.At != 10*unit.Minute || got.Models != 14 || got.Skipped != 0 || got.Unpredicted != 0 {
			t.Fatalf("%+v", got)
		}
		// p95 of 2 cores is the end of its bucket, at most 5 % above; plus 10 %.
		if peak := got.Pods.Peak; peak.CPU < 2200 || peak.CPU > 2320 || peak.Memory < 22*gib/10 || peak.Memory > 24*gib/10 {
			t.Errorf("peak %+v", peak)
		}
		if got.Pods.Reclaimable.CPU != 4000-got.Pods.Peak.CPU || !got.Classes.Known {
			t.Errorf("%+v", got.Prediction)
		}
	})
}

func TestMemoryPeakCountsSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		p := b.predictor("")
		p.o.MemoryPeak = true
		b.run(t, p, 3*time.Minute+time.Second)
		if peak := p.Report().Pods.Peak.Memory; peak < 44*gib/10 || peak > 47*gib/10 {
			t.Errorf("peak %v", peak)
		}
	})
}

func TestWhatIsNotMeasuredIsNotLearnt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.fail[sample.OfPod("a")] = true
		p := b.predictor("")
		b.run(t, p, 3*time.Minute+time.Second)
		got := p.Report()
		// Pod, its two classes and the system are missing; the pod counts with its request.
		if got.Skipped != 4 || got.Models != 10 || got.Unpredicted != 1 || got.Classes.Known || got.Peak.CPU != 4000 || got.Reclaimable.CPU != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// TestClockIsSet: a month on and back again, what was learned is as warm as before.
func TestClockIsSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		p := b.predictor("")
		cfg := predict.Default()
		cfg.ColdStart = 20 * unit.Minute
		p.o.Config, p.set = cfg, predict.NewSet(cfg)
		var ahead atomic.Int64
		p.o.Wall = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		ctx, cancel := context.WithCancel(t.Context())
		go b.measure(ctx)
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		time.Sleep(15*time.Minute + time.Second)
		for _, by := range []time.Duration{0, 30 * 24 * time.Hour, 0} {
			ahead.Store(int64(by))
			time.Sleep(time.Minute)
			if got := p.Report(); got.Unpredicted != 0 || !got.Classes.Known || got.Reclaimable.CPU <= 0 {
				t.Errorf("the clock is %s ahead: %+v", by, got)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := strings.Count(b.log.String(), "the clock was set"); n != 2 {
			t.Errorf("it was set twice, told %d times: %s", n, b.log.String())
		}
	})
}

func TestUnknownPods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		p := b.predictor("")
		ctx, cancel := context.WithCancel(t.Context())
		go b.measure(ctx)
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		time.Sleep(3*time.Minute + time.Second)
		before := p.Report()
		b.known.Store(false)
		time.Sleep(5 * time.Minute)
		if got := p.Report(); !got.Known || got.At != before.At {
			t.Errorf("after five minutes: %+v", got)
		}
		time.Sleep(time.Minute)
		if got := p.Report(); got.Known || got.Models != before.Models {
			t.Errorf("after six minutes: %+v", got)
		}
		b.known.Store(true)
		time.Sleep(time.Minute)
		if got := p.Report(); !got.Known {
			t.Errorf("the pods are back: %+v", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestModelsOutliveTheProcess(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		p := b.predictor(dir)
		b.run(t, p, 5*time.Minute+time.Second)
		want := p.set.Checkpoints()
		next := b.predictor(dir)
		next.restore()
		if diff := cmp.Diff(rounded(t, want), rounded(t, next.set.Checkpoints())); diff != "" {
			t.Errorf("(-kept +restored)\n%s", diff)
		}
		info, err := os.Stat(filepath.Join(dir, fileName))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v %v", info, err)
		}
	})
}

// rounded is what the format keeps.
func rounded(t *testing.T, cs []predict.Checkpoint) []string {
	t.Helper()
	var out []string
	for _, c := range cs {
		c.CPU.Total, c.Memory.Total = float64(int(c.CPU.Total*100)), float64(int(c.Memory.Total*100))
		b, err := FormatCheckpoint(c)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(b))
	}
	return out
}

// The models are kept every ten minutes; who trains every ten seconds loses no more than ten lessons either.
func TestKeepsEveryTenthTraining(t *testing.T) {
	t.Parallel()
	for name, every := range map[string]time.Duration{"by default": 0, "every ten seconds": 10 * time.Second} {
		dir := t.TempDir()
		path := filepath.Join(dir, fileName)
		synctest.Test(t, func(t *testing.T) {
			b := newBench()
			p := b.predictor(dir)
			lesson := time.Minute
			if every > 0 {
				lesson, p.o.Config.TrainEvery = every, unit.Micros(every.Microseconds())
			}
			ctx, cancel := context.WithCancel(t.Context())
			go b.measure(ctx)
			done := make(chan error)
			go func() { done <- p.Run(ctx) }()
			var written []int
			for i := range 25 {
				time.Sleep(lesson)
				synctest.Wait()
				if os.Remove(path) == nil {
					written = append(written, i+1)
				}
			}
			cancel()
			<-done
			if diff := cmp.Diff([]int{10, 20}, written); diff != "" {
				t.Errorf("%s: lessons: (-want +got)\n%s", name, diff)
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: nothing was kept at the end: %v", name, err)
			}
		})
	}
}

func TestFilesThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, fileName), 0o700); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		p := b.predictor(dir)
		b.run(t, p, 12*time.Minute+time.Second) // it is kept at the tenth lesson, tried again at the next two, and at the end
		for _, want := range []string{"cannot take up a prediction model", "cannot keep the prediction models"} {
			if strings.Count(b.log.String(), want) != 1 {
				t.Errorf("%q is not in the log once:\n%s", want, b.log.String())
			}
		}
		if got := p.Report(); !got.Known || !strings.Contains(got.Unkept, fileName) {
			t.Errorf("%+v", got)
		}
		if err := os.Remove(filepath.Join(dir, fileName)); err != nil {
			t.Fatal(err)
		}
		p.step() // no interval was measured: what it had learned is kept
		p.keep()
		if got := p.Report(); got.Unkept != "" || strings.Count(b.log.String(), "are kept again") != 1 {
			t.Errorf("%+v:\n%s", got, b.log.String())
		}
	})
	if models, problems := load(dir); len(models) == 0 || problems != nil {
		t.Errorf("%d models, %v", len(models), problems)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "."+fileName+"*")); err != nil || left != nil {
		t.Errorf("temporary files are left: %v %v", left, err)
	}
}
