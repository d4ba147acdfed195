// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package predict

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
)

// upstreams is a checkpoint as upstream writes it: the reference is a multiple of the half-life.
func upstreams() Checkpoint {
	midnight := start - Wall(10*hour)
	return Checkpoint{
		Key: NodeKey, Updated: midnight + Wall(9*hour) + Wall(30*unit.Minute),
		CPU:    Distribution{midnight, map[int]uint32{3: 10000, 9: 5000}, 1500.5},
		Memory: Distribution{midnight, map[int]uint32{40: 10000}, 1200},
	}
}

func TestRestore(t *testing.T) {
	t.Parallel()
	s := NewSet(Default())
	if err := s.Restore(start, upstreams()); err != nil {
		t.Fatal(err)
	}
	peaks, _ := s.Peaks(NodeKey)
	// Two thirds of the CPU weight lie in bucket 3, the rest in 9.
	if peaks.P60 != round(cpuBuckets[4], memoryBuckets[41]) || peaks.P90 != round(cpuBuckets[10], memoryBuckets[41]) {
		t.Errorf("%+v", peaks)
	}
	if got := s.models[NodeKey].cpu.evidence(); got < 866 || got > 868 { // 1500.5 · 2^(-9.5 h / 12 h)
		t.Errorf("evidence %v", got)
	}
	// A model that knows one resource only is no error.
	half := upstreams()
	half.Key, half.Memory = "u", Distribution{}
	if err := s.Restore(start, half); err != nil || s.Len() != 2 {
		t.Errorf("%v, %d models", err, s.Len())
	}
}

func TestRestoreRefuses(t *testing.T) {
	t.Parallel()
	s := NewSet(Default())
	for name, c := range map[string]struct {
		change func(*Checkpoint)
		want   string
	}{
		"no key":        {func(c *Checkpoint) { c.Key = "" }, "restore a model: it has no key"},
		"bucket":        {func(c *Checkpoint) { c.CPU.Weights = map[int]uint32{158: 1} }, "restore model of __node__: cpu: bucket 158, there are 158"},
		"negative":      {func(c *Checkpoint) { c.Memory.Weights = map[int]uint32{-1: 1} }, "restore model of __node__: memory: bucket -1, there are 205"},
		"weight":        {func(c *Checkpoint) { c.CPU.Weights[1] = 10001 }, "restore model of __node__: cpu: bucket 1 weighs 10001, the most is 10000"},
		"below nothing": {func(c *Checkpoint) { c.CPU.Total = -1 }, "restore model of __node__: cpu: the total weight is -1"},
		"no number":     {func(c *Checkpoint) { c.CPU.Total = math.NaN() }, "restore model of __node__: cpu: the total weight is NaN"},
		"huge":          {func(c *Checkpoint) { c.CPU.Total = 1e300 }, "restore model of __node__: cpu: the total weight is 1e+300"},
		"no buckets":    {func(c *Checkpoint) { c.CPU.Weights = nil }, "restore model of __node__: cpu: the total weight is 1500, but the buckets sum up to 0"},
		"no total":      {func(c *Checkpoint) { c.CPU.Total = 0 }, "restore model of __node__: cpu: the total weight is 0, but the buckets sum up to 15000"},
		"no reference":  {func(c *Checkpoint) { c.CPU.Reference = 0 }, "restore model of __node__: cpu: there is no reference time"},
		"long ago": {func(c *Checkpoint) { c.CPU.Reference -= Wall(year) },
			"restore model of __node__: cpu: the reference time is 730.8 half-lives before the last update"},
		"not yet": {func(c *Checkpoint) { c.Memory.Reference += Wall(3 * day) },
			"restore model of __node__: memory: the reference time is -2.604 half-lives before the last update"},
		"too much": {func(c *Checkpoint) { c.CPU.Total = 1e12 },
			"restore model of __node__: cpu: the evidence of 5.777e+11 samples, no training leaves so much"},
	} {
		cp := upstreams()
		c.change(&cp)
		if err := s.Restore(start, cp); err == nil || err.Error() != c.want || s.Len() != 0 {
			t.Errorf("%s: %d models\n got %v\nwant %s", name, s.Len(), err, c.want)
		}
	}
}

// TestCheckpointsKeepWhatIsKnown: a set that comes back from its checkpoints predicts the same, and learns on.
func TestCheckpointsKeepWhatIsKnown(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 5))
	minutely := func(i int, sets ...*Set) {
		in := Training{Node: used(10+r.Float64(), 20*gib), Pods: []PodUsage{
			pod("a", protocol.PriorityProd, used(r.ExpFloat64(), (1+r.Float64())*gib)), pod("b", protocol.PriorityBatch, Usage{}),
		}}
		for _, s := range sets {
			s.Train(minute(i), in)
		}
	}
	s, back := NewSet(Default()), NewSet(Default())
	for i := range 3000 {
		minutely(i, s)
	}
	cps := s.Checkpoints()
	for i, c := range cps {
		if i > 0 && cps[i-1].Key >= c.Key {
			t.Errorf("%s is after %s", c.Key, cps[i-1].Key)
		}
		if err := back.Restore(minute(3000), c); err != nil {
			t.Fatal(err)
		}
	}
	if back.Len() != s.Len() || s.Len() != 11 { // a, node, mid, free, none, prod, and the QoS classes but BE; without b neither batch nor BE nor system
		t.Fatalf("%d of %d models came back", back.Len(), s.Len())
	}
	compare := func(when string) {
		for k := range s.models {
			was, ok := s.Peaks(k)
			is, okBack := back.Peaks(k)
			if ok != okBack || was.P60 != is.P60 || was.P90 != is.P90 || was.P95 != is.P95 || was.P98 != is.P98 {
				t.Errorf("%s, %s: %+v, was %+v", when, k, is, was)
			}
			if a, b := s.models[k].cpu.evidence(), back.models[k].cpu.evidence(); math.Abs(a-b) > 0.001*a {
				t.Errorf("%s, %s: evidence %v, was %v", when, k, b, a)
			}
		}
	}
	compare("restored")
	for i := 3000; i < 3300; i++ {
		minutely(i, s, back)
	}
	compare("trained on")
}

func TestWhatWasRestoredWaitsForItsPod(t *testing.T) {
	t.Parallel()
	s := NewSet(Default())
	old := upstreams()
	old.Key = "u"
	now := start + Wall(5*day)
	if err := s.Restore(now, old); err != nil {
		t.Fatal(err)
	}
	if gone := s.Collect(now + Wall(30*unit.Minute)); gone != nil {
		t.Errorf("%v went", gone)
	}
	if gone := s.Collect(now + Wall(31*unit.Minute)); len(gone) != 1 {
		t.Errorf("%v went, want u", gone)
	}
}

func TestAnotherHalfLifeAfterRestart(t *testing.T) {
	t.Parallel()
	s := NewSet(Default())
	const month = 60 * 24 * 30
	for i := range month {
		s.Train(minute(i), Training{Node: used(8, 8*gib)})
	}
	cfg := Default()
	cfg.CPU.HalfLife = 240 * hour
	back := NewSet(cfg)
	for _, c := range s.Checkpoints() {
		if err := back.Restore(minute(month), c); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 60 * 24 * 2 {
		back.Train(minute(month+i), Training{Node: used(1, gib)})
	}
	if p, _ := back.Peaks(NodeKey); p.P60.CPU > 2000 || p.P90.CPU < 8000 {
		t.Errorf("%+v", p)
	}
	if e := back.models[NodeKey].cpu.evidence(); e < 3500 || e > 3700 { // 1039 that are two days old and 2880 new ones
		t.Errorf("evidence %v", e)
	}
}

// FuzzRestore: whatever is taken in goes on learning and can be kept again.
func FuzzRestore(f *testing.F) {
	f.Add("u", int64(start), int64(start-1e9), 3, uint32(10000), 9, uint32(1), 1500.5)
	f.Add("__node__", int64(0), int64(1), 0, uint32(0), 157, uint32(1), 1e-300)
	f.Add("u", int64(math.MaxInt64), int64(math.MinInt64), 157, uint32(10000), -1, uint32(0), 1e38)
	f.Add("u", int64(-unit.Minute), int64(-unit.Minute), 3, uint32(10000), 9, uint32(1), 1500.5)
	f.Add("u", int64(math.MaxInt64), int64(math.MaxInt64), 3, uint32(10000), 3, uint32(10000), 1e7)
	f.Fuzz(func(t *testing.T, key string, updated, reference int64, i int, a uint32, j int, b uint32, total float64) {
		d := Distribution{Wall(reference), map[int]uint32{i: a, j: b}, total}
		s := NewSet(Default())
		if s.Restore(start, Checkpoint{Key: Key(key), Updated: Wall(updated), CPU: d, Memory: d}) != nil {
			if s.Len() != 0 {
				t.Fatal("an error and a model")
			}
			return
		}
		next := Wall(updated) + Wall(unit.Minute)
		if next <= 0 {
			return // no clock stands there: 0 means that there is no time, and the end of int64 is 292,000 years away
		}
		s.Train(next, Training{Node: used(1, gib), Pods: []PodUsage{pod(key, protocol.PriorityNone, used(1, gib))}})
		p, ok := s.Peaks(Key(key))
		if !ok || p.P60.CPU > p.Max.CPU || p.P60.Memory > p.Max.Memory || p.P60.CPU <= 0 {
			t.Fatalf("%+v %v", p, ok)
		}
		for _, c := range s.Checkpoints() {
			if err := NewSet(Default()).Restore(start, c); err != nil {
				t.Fatal(err)
			}
		}
	})
}
