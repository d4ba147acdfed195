// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package predict

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
)

const gib = 1 << 30

func used(cores, bytes float64) Usage { return Usage{unit.Got(cores), unit.Got(bytes)} }

// pod is one of the QoS class that its priority class stands for.
func pod(uid string, p protocol.PriorityClass, u Usage) PodUsage {
	switch p {
	case protocol.PriorityBatch, protocol.PriorityFree:
		return PodUsage{uid, p, protocol.QoSBE, u}
	case protocol.PriorityNone:
		return PodUsage{uid, p, protocol.QoSNone, u}
	default:
		return PodUsage{uid, p, protocol.QoSLS, u}
	}
}

// settled is a model whose peaks are exactly these, without margin.
func settled(cores, bytes float64) *model {
	m := &model{
		cpu:    newHistogram([]float64{0, cores}, 12*hour),
		memory: newHistogram([]float64{0, bytes}, 24*hour),
	}
	for i := range 1440 {
		m.cpu.add(0, minute(i))
		m.memory.add(0, minute(i))
	}
	return m
}

func TestDefaultIsValidAndWarmAfterHalfADay(t *testing.T) {
	t.Parallel()
	c := Default()
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	s := NewSet(c)
	at := 0
	for ; at < 2000; at++ {
		s.Train(minute(at), Training{Node: used(4, gib)})
		if _, ok := s.peak(NodeKey, s.cfg.system()); ok {
			break
		}
	}
	// CPU needs 389 of its 1039 samples of steady state, memory 519 of 2078: 7.9 and 10 hours.
	if at < 9*60 || at > 11*60 {
		t.Errorf("warm after %d minutes", at)
	}
	c.ColdStart = 0
	s = NewSet(c)
	if _, ok := s.peak(NodeKey, s.cfg.system()); ok {
		t.Error("nothing is known, but believed")
	}
	s.Train(start, Training{Node: used(4, gib)})
	if _, ok := s.peak(NodeKey, s.cfg.system()); !ok {
		t.Error("without cold start the first sample is believed")
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"half-life":  {func(c *Config) { c.CPU.HalfLife = 0 }, "prediction: a half-life is below one minute"},
		"percentile": {func(c *Config) { c.Memory.Percentile = 97 }, "prediction: percentiles 95 and 97 for CPU and memory, want 60, 90, 95, 98 or 100"},
		"class":      {func(c *Config) { c.CPU.Classes.Free = 97 }, "prediction: the percentile of a class is not 60, 90, 95, 98 or 100"},
		"cold start": {func(c *Config) { c.ColdStart = -1 }, "prediction: the cold start is negative"},
		"interval":   {func(c *Config) { c.TrainEvery = 0 }, "prediction: the training interval is below one second"},
		"expiry":     {func(c *Config) { c.Expire = unit.Second }, "prediction: models expire before they are trained again"},
		"margin":     {func(c *Config) { c.Margin.System = -1 }, "prediction: a margin is outside of 0..1000 percent"},
	} {
		cfg := Default()
		c.change(&cfg)
		if err := cfg.Validate(); err == nil || err.Error() != c.want {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

func TestMarginOfEachClass(t *testing.T) {
	t.Parallel()
	m := Margin{Prod: 1, Mid: 2, Batch: 3, Free: 4, None: 5, System: 6}
	for i, c := range []protocol.PriorityClass{protocol.PriorityProd, protocol.PriorityMid, protocol.PriorityBatch, protocol.PriorityFree, protocol.PriorityNone} {
		if got := m.of(c); got != unit.Percent(i+1) {
			t.Errorf("margin of %q is %d", c, got)
		}
	}
}

func TestPeaks(t *testing.T) {
	t.Parallel()
	s := NewSet(Default())
	s.models["p"] = settled(2, gib)
	two := Resources{2000, gib}
	if got, ok := s.Peaks("p"); !ok || got != (Peaks{two, two, two, two, two}) {
		t.Errorf("%+v %v", got, ok)
	}
	if _, ok := s.Peaks("q"); ok {
		t.Error("a model that is not there answers")
	}
	s = NewSet(Default())
	for i := range 100 {
		s.Train(minute(i), Training{Node: used(float64(i), float64(i)*gib)})
	}
	got, _ := s.Peaks(NodeKey)
	// Of 0..99 (the later ones a little heavier), at most one bucket of 5 % above.
	for _, c := range []struct {
		got  Resources
		want float64
	}{{got.P60, 61}, {got.P90, 90}, {got.P95, 95}, {got.P98, 98}, {got.Max, 99}} {
		cores, gibs := float64(c.got.CPU)/1000, float64(c.got.Memory)/gib
		if cores < c.want-1 || cores > (c.want+1)*1.06 || gibs < c.want-1 || gibs > (c.want+1)*1.06 {
			t.Errorf("got %v cores and %v GiB, want about %v", cores, gibs, c.want)
		}
	}
}

func TestPredict(t *testing.T) {
	t.Parallel()
	prod, none, mid := protocol.PriorityProd, protocol.PriorityNone, protocol.PriorityMid
	now := minute(1440)
	old, young := now-Wall(25*hour), now-Wall(24*hour)
	node := Resources{16000, 64 * gib}
	four := Resources{4000, 8 * gib}
	warm := map[Key]*model{"p": settled(2, 4*gib), "q": settled(2, 4*gib), "over": settled(6, 10*gib), "big": settled(2, 4*gib)}
	classModels := map[Key]*model{ClassKey(prod): settled(5, 10*gib), ClassKey(none): settled(1, 2*gib), SystemKey: settled(1, 2*gib)}
	known := func(reclaimable, peak Resources) Part { return Part{reclaimable, peak, true} }
	zero := Resources{}
	for name, c := range map[string]struct {
		models       map[Key]*model
		margin       *Margin
		allocatable  Resources
		pods         []Pod
		want         Part // of the pods
		classes      Part
		reclaimable  Resources
		peak         Resources
		nUnpredicted int
	}{
		"worked example: p95 2, request 4, margin 10": {
			models: warm, allocatable: node,
			pods: []Pod{{"p", prod, protocol.QoSLS, old, false, four}},
			want: known(Resources{1800, 8*gib - (4*gib + 4*gib/10)}, Resources{2200, 4*gib + 4*gib/10}),
			peak: Resources{2200, 4*gib + 4*gib/10},
		},
		"both predictors": {
			models: join(warm, classModels), allocatable: node,
			pods: []Pod{{"p", prod, protocol.QoSLS, old, false, four}, {"q", none, protocol.QoSLS, old, false, four}, {"x", mid, protocol.QoSLS, old, false, four}},
			want: known(Resources{3600, 2 * (8*gib - (4*gib + 4*gib/10))}, Resources{4400, 2 * (4*gib + 4*gib/10)}),
			// classes: peak 5.5 + 1.1, used 7.7; Σ prod requests 4 − 7.7 < 0.
			classes: known(zero, Resources{6600, 11*gib + 2*gib + 2*gib/10}),
			peak:    Resources{6600, 11*gib + 2*gib + 2*gib/10},
		},
		"the lesser by resource": {
			models: join(warm, classModels), allocatable: node,
			pods:        []Pod{{"p", prod, protocol.QoSLS, old, false, Resources{10000, 8 * gib}}},
			want:        known(Resources{7800, 8*gib - (4*gib + 4*gib/10)}, Resources{2200, 4*gib + 4*gib/10}),
			classes:     known(Resources{2300, 0}, Resources{6600, 11*gib + 2*gib + 2*gib/10}), // 10 − 7.7; 8 − 15.4 < 0
			reclaimable: Resources{2300, 0},
			peak:        Resources{6600, 11*gib + 2*gib + 2*gib/10},
		},
		"a pod above its request gives nothing": {
			models: warm, allocatable: node,
			pods: []Pod{{"over", prod, protocol.QoSLS, old, false, four}},
			want: known(zero, Resources{6600, 11 * gib}), peak: Resources{6600, 11 * gib},
		},
		"new, terminating, unknown": {
			models: warm, allocatable: node,
			pods: []Pod{{"p", prod, protocol.QoSLS, young, false, four}, {"q", none, protocol.QoSLS, old, true, four}, {"n", prod, protocol.QoSLS, old, false, four}, {"big", prod, protocol.QoSLS, 0, false, four}},
			want: known(zero, Resources{16000, 32 * gib}), peak: Resources{16000, 32 * gib}, nUnpredicted: 4,
		},
		"no more than the node has": {
			models: warm, allocatable: Resources{3000, 8 * gib},
			pods: []Pod{{"p", prod, protocol.QoSLS, old, false, four}},
			want: known(Resources{800, 8*gib - (4*gib + 4*gib/10)}, Resources{2200, 4*gib + 4*gib/10}), peak: Resources{2200, 4*gib + 4*gib/10},
		},
		"a node that is over": {
			models: warm, allocatable: Resources{1000, gib},
			pods: []Pod{{"p", prod, protocol.QoSLS, old, false, four}},
			want: known(zero, Resources{2200, 4*gib + 4*gib/10}), peak: Resources{2200, 4*gib + 4*gib/10},
		},
		"margins by class": {
			models: join(warm, classModels), allocatable: node, margin: &Margin{Prod: 50, None: 0, System: 100},
			pods: []Pod{{"p", prod, protocol.QoSLS, old, false, Resources{12000, 40 * gib}}, {"q", none, protocol.QoSLS, old, false, four}},
			want: known(Resources{9000 + 2000, 34*gib + 4*gib}, Resources{5000, 10 * gib}).bounded(Resources{11000, 54 * gib}),
			// peak 7.5 + 1, used 10.5 of 16; memory peak 15 + 2, used 21.
			classes:     known(Resources{1500, 19 * gib}, Resources{8500, 17 * gib}),
			reclaimable: Resources{1500, 19 * gib}, peak: Resources{8500, 17 * gib},
		},
		"no pods": {
			models: classModels, allocatable: node,
			want: known(zero, zero), classes: known(zero, Resources{6600, 11*gib + 2*gib + 2*gib/10}), peak: Resources{6600, 11*gib + 2*gib + 2*gib/10},
		},
	} {
		cfg := Default()
		if c.margin != nil {
			cfg.Margin = *c.margin
		}
		s := NewSet(cfg)
		s.models = c.models
		got := s.Predict(now, c.allocatable, c.pods)
		got.ByPriority, got.ByQoS = Prediction{}.ByPriority, Prediction{}.ByQoS // TestPeakOfEachClass has these
		want := Prediction{Reclaimable: c.reclaimable, Peak: c.peak, Pods: c.want, Classes: c.classes, Unpredicted: c.nUnpredicted}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

// TestPeakOfEachClass: the sum of a class's pods, with its own margin, by priority and by QoS. A cold class has none.
func TestPeakOfEachClass(t *testing.T) {
	t.Parallel()
	cfg := Default()
	cfg.ColdStart = 2 * hour
	cfg.Margin = Margin{Prod: 10, Mid: 20, Batch: 50, Free: 100, None: 0, System: 1000}
	s := NewSet(cfg)
	of := func(uid string, p protocol.PriorityClass, q protocol.QoS, cores float64) PodUsage {
		return PodUsage{uid, p, q, used(cores, cores*gib)}
	}
	for i := range 120 {
		in := Training{Node: used(40, 40*gib), Pods: []PodUsage{
			of("db", protocol.PriorityProd, protocol.QoSLSR, 4), of("web", protocol.PriorityProd, protocol.QoSLS, 2),
			of("stream", protocol.PriorityMid, protocol.QoSLS, 1), of("job", protocol.PriorityBatch, protocol.QoSBE, 3),
			of("spare", protocol.PriorityFree, protocol.QoSBE, 5), of("odd", protocol.PriorityNone, protocol.QoSNone, 0.5), of("net", protocol.PriorityProd, protocol.QoSSystem, 0.1),
		}}
		s.Train(minute(i), in)
	}
	got := s.Predict(minute(120), Resources{64000, 128 * gib}, nil)
	for _, c := range []struct {
		name string
		sums []Sum
		want map[string]float64 // cores, which are as many GiB
	}{
		{"priority", got.ByPriority[:], map[string]float64{"koord-prod": 6.1 * 1.1, "koord-mid": 1.2, "koord-batch": 4.5, "koord-free": 10, "none": 0.5}},
		{"QoS", got.ByQoS[:], map[string]float64{"LSE": 0, "LSR": 4.4, "LS": 3.3, "BE": 8 * 1.5, "SYSTEM": 0.11, "none": 0.5}},
	} {
		if len(c.sums) != len(c.want) {
			t.Errorf("%d classes of %s", len(c.sums), c.name)
		}
		for _, sum := range c.sums {
			want, ok := c.want[sum.Class]
			cores, gibs := float64(sum.Peak.CPU)/1000, float64(sum.Peak.Memory)/gib
			// The end of the sample's bucket: at most 5 % above, and never less than the first bucket's.
			if !ok || !sum.Known || cores < want || cores > want*1.06+0.05 || gibs < want || gibs > want*1.06+0.05 {
				t.Errorf("%s %s: %+v, want %v", c.name, sum.Class, sum, want)
			}
		}
	}
	got = NewSet(cfg).Predict(minute(1), Resources{}, nil)
	for _, sum := range slices.Concat(got.ByPriority[:], got.ByQoS[:]) {
		if sum.Known || sum.Peak != (Resources{}) || sum.Class == "" {
			t.Errorf("nothing was learned: %+v", sum)
		}
	}
}

// bounded repeats the bound of the formula where a row would hide it.
func (p Part) bounded(room Resources) Part {
	p.Reclaimable = p.Reclaimable.least(room)
	return p
}

func join(sets ...map[Key]*model) map[Key]*model {
	out := map[Key]*model{}
	for _, s := range sets {
		for k, m := range s {
			out[k] = m
		}
	}
	return out
}
