// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package predict

import (
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
)

func TestTraining(t *testing.T) {
	t.Parallel()
	cfg := Default()
	cfg.ColdStart = 0
	prod, batch, none := protocol.PriorityProd, protocol.PriorityBatch, protocol.PriorityNone
	unknown := unit.Measured[float64]{}
	missing := Usage{}
	for name, c := range map[string]struct {
		in    Training
		skips []Skip
		// want is the largest CPU sample of each model that there is, as the bucket's upper bound tells.
		want map[Key]float64
		// qos are the models of QoS classes beside it, all others are 0; negative is none.
		qos map[protocol.QoS]float64
	}{
		"all measured": {
			in: Training{Node: used(10, 10*gib), Pods: []PodUsage{pod("a", prod, used(2, gib)), pod("b", prod, used(3, gib)), pod("c", batch, used(1, gib))}},
			want: map[Key]float64{
				"a": 2, "b": 3, "c": 1, NodeKey: 10, SystemKey: 4, ClassKey(prod): 5, ClassKey(batch): 1, ClassKey(protocol.PriorityMid): 0,
				ClassKey(protocol.PriorityFree): 0, ClassKey(none): 0,
			},
			qos: map[protocol.QoS]float64{protocol.QoSLS: 5, protocol.QoSBE: 1},
		},
		"a pod that failed is in no sum": {
			in:    Training{Node: used(10, 10*gib), Pods: []PodUsage{pod("a", prod, used(2, gib)), pod("b", prod, missing), pod("c", batch, used(1, gib))}},
			skips: []Skip{{ClassKey(prod), true, true}, {QoSKey(protocol.QoSLS), true, true}, {SystemKey, true, true}, {"b", true, true}},
			qos:   map[protocol.QoS]float64{protocol.QoSLS: -1, protocol.QoSBE: 1},
			want: map[Key]float64{
				"a": 2, "c": 1, NodeKey: 10, ClassKey(batch): 1, ClassKey(protocol.PriorityMid): 0, ClassKey(protocol.PriorityFree): 0, ClassKey(none): 0,
			},
		},
		"a node that failed makes no system": {
			in:    Training{Pods: []PodUsage{pod("a", none, used(2, gib))}},
			skips: []Skip{{SystemKey, true, true}, {NodeKey, true, true}},
			qos:   map[protocol.QoS]float64{protocol.QoSNone: 2},
			want: map[Key]float64{
				"a": 2, ClassKey(none): 2, ClassKey(prod): 0, ClassKey(batch): 0, ClassKey(protocol.PriorityMid): 0, ClassKey(protocol.PriorityFree): 0,
			},
		},
		"pods above the node leave no system": {
			in:  Training{Node: used(1, gib), Pods: []PodUsage{pod("a", none, used(2, gib))}},
			qos: map[protocol.QoS]float64{protocol.QoSNone: 2},
			want: map[Key]float64{
				"a": 2, NodeKey: 1, SystemKey: 0, ClassKey(none): 2, ClassKey(prod): 0, ClassKey(batch): 0, ClassKey(protocol.PriorityMid): 0,
				ClassKey(protocol.PriorityFree): 0,
			},
		},
		"one resource failed": {
			in:    Training{Node: Usage{unknown, unit.Got(1.0 * gib)}, Pods: []PodUsage{pod("a", none, Usage{CPU: unit.Got(2.0), Memory: unit.Measured[float64]{V: -1, OK: true}})}},
			skips: []Skip{{"__node-None__", false, true}, {"__node-qos-none__", false, true}, {SystemKey, true, true}, {NodeKey, true, false}, {"a", false, true}},
			qos:   map[protocol.QoS]float64{protocol.QoSNone: 2},
			want: map[Key]float64{
				"a": 2, NodeKey: -1, ClassKey(none): 2, ClassKey(prod): 0, ClassKey(batch): 0, ClassKey(protocol.PriorityMid): 0,
				ClassKey(protocol.PriorityFree): 0,
			},
		},
	} {
		s := NewSet(cfg)
		skips := s.Train(start, c.in)
		if diff := cmp.Diff(c.skips, skips); diff != "" {
			t.Errorf("%s: skips (-want +got)\n%s", name, diff)
		}
		got := map[Key]float64{}
		for k, m := range s.models {
			if got[k] = quantile(&m.cpu, 100); got[k] == 0 {
				got[k] = -1 // nothing known
			}
		}
		for _, q := range qosClasses {
			if v := c.qos[q]; v >= 0 {
				c.want[QoSKey(q)] = v
			}
		}
		want := map[Key]float64{}
		for k, v := range c.want {
			if want[k] = v; v >= 0 {
				h := newHistogram(cpuBuckets, hour)
				want[k] = h.starts[h.find(v)+1]
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: models (-want +got)\n%s", name, diff)
		}
	}
	s := NewSet(cfg)
	for _, v := range []float64{math.NaN(), math.Inf(1), -0.1} {
		s.Train(start, Training{Node: Usage{unit.Measured[float64]{V: v, OK: true}, unit.Measured[float64]{V: v, OK: true}}})
	}
	if _, ok := s.Peaks(NodeKey); ok {
		t.Error("trained on what is no usage")
	}
}

func TestModelsThatWereAwayAreColdAgain(t *testing.T) {
	t.Parallel()
	s := NewSet(Default())
	for i := range 1440 {
		s.Train(minute(i), Training{Node: used(1, gib)})
	}
	if _, ok := s.peak(NodeKey, s.cfg.system()); !ok {
		t.Fatal("cold after a day")
	}
	away := minute(1440) + Wall(7*day)
	s.Train(away, Training{Node: used(1, gib)})
	if p, ok := s.peak(NodeKey, s.cfg.system()); ok {
		t.Errorf("after a week away one sample is believed: %+v", p)
	}
}

func TestCollect(t *testing.T) {
	t.Parallel()
	s := NewSet(Default())
	both := []PodUsage{pod("a", protocol.PriorityProd, used(1, gib)), pod("b", protocol.PriorityProd, used(1, gib))}
	s.Train(minute(0), Training{Node: used(2, gib), Pods: both})
	s.Train(minute(10), Training{Node: used(2, gib), Pods: both[1:]})
	if gone := s.Collect(minute(30)); gone != nil {
		t.Errorf("gone at the limit: %v", gone)
	}
	if diff := cmp.Diff([]Key{"a"}, s.Collect(minute(31))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	// A jump of the clock: what is trained stays.
	s.Train(minute(1e6), Training{Node: used(2, gib)})
	if diff := cmp.Diff([]Key{"b"}, s.Collect(minute(1e6))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if s.Len() != 13 { // node, system, five priority and six QoS classes
		t.Errorf("%d models", s.Len())
	}
}

// TestMove: a clock that is set is no time that passes. Without that a jump by days takes away all that was learned.
func TestMove(t *testing.T) {
	t.Parallel()
	for _, by := range []unit.Micros{2 * hour, 400 * day, -2 * hour, -400 * day} {
		moved, still := NewSet(Default()), NewSet(Default())
		lesson := func(i int) Training {
			in := Training{Node: used(float64(i%7), float64(i%5)*gib)}
			if i < 1430 { // it has gone ten minutes before
				in.Pods = []PodUsage{pod("a", protocol.PriorityProd, used(0, 0))}
			}
			return in
		}
		for i := range 1440 {
			moved.Train(minute(i), lesson(i))
			still.Train(minute(i), lesson(i))
		}
		moved.Move(by)
		moved.Train(minute(1440)+Wall(by), lesson(1440))
		still.Train(minute(1440), lesson(1440))
		got, warm := moved.peak(NodeKey, moved.cfg.system())
		want, _ := still.peak(NodeKey, still.cfg.system())
		if !warm || got != want {
			t.Errorf("%s: peak %+v, warm %t, want %+v", number(by.Seconds()), got, warm, want)
		}
		if gone := moved.Collect(minute(1440) + Wall(by)); gone != nil {
			t.Errorf("%s: gone: %v", number(by.Seconds()), gone)
		}
		a, b := moved.Checkpoints(), still.Checkpoints()
		for i := range a {
			a[i].Updated -= Wall(by)
			for _, d := range []*Distribution{&a[i].CPU, &a[i].Memory} {
				d.Reference -= Wall(by)
			}
		}
		if diff := cmp.Diff(b, a); diff != "" {
			t.Errorf("%s: checkpoints (-still +moved)\n%s", number(by.Seconds()), diff)
		}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	for _, p := range classes[1:] {
		if got, want := ClassKey(p), Key("__node-"+p.String()+"__"); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if ClassKey(protocol.PriorityNone) != "__node-None__" {
		t.Error("the model of unclassed pods")
	}
	seen := map[Key]bool{}
	for _, q := range qosClasses {
		name := q.String()
		if name == "" {
			name = "none"
		}
		if got := QoSKey(q); got != Key("__node-qos-"+name+"__") || seen[got] {
			t.Errorf("QoS class %s has the key %s", name, got)
		}
		seen[QoSKey(q)] = true
	}
}

func minuteOf100Pods() Training {
	in := Training{Node: used(60, 100*gib)}
	for i := range 100 {
		in.Pods = append(in.Pods, pod(fmt.Sprintf("pod-%03d", i), classes[i%len(classes)], used(float64(i%7), float64(i%5)*gib)))
	}
	return in
}

// TestMemoryAndAllocations run alone, because they look at the heap.
func TestMemoryAndAllocations(t *testing.T) {
	in := minuteOf100Pods()
	before := heap()
	s := NewSet(Default())
	s.Train(start, in)
	if size := heap() - before; size > 512<<10 {
		t.Errorf("models of 100 pods take %d bytes", size)
	}
	at := 0
	if n := testing.AllocsPerRun(20, func() {
		at++
		s.Train(minute(at), in)
	}); n != 0 {
		t.Errorf("Train allocates %v times", n)
	}
	pods := []Pod{{UID: "pod-001", Priority: protocol.PriorityProd, Started: start}}
	if n := testing.AllocsPerRun(20, func() { s.Predict(minute(2000), Resources{96000, 400 * gib}, pods) }); n != 0 {
		t.Errorf("Predict allocates %v times", n)
	}
	runtime.KeepAlive(s)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

func BenchmarkTrain(b *testing.B) {
	s, in := NewSet(Default()), minuteOf100Pods()
	at := 0
	b.ReportAllocs()
	for b.Loop() {
		at++
		s.Train(minute(at), in)
	}
}
