// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package interference

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
)

var usual = DefaultPace()

// taught is a warm baseline of CPU pressure about 10 % ± 1 %.
func taught(r *rand.Rand) (Baseline, unit.Micros) {
	var b Baseline
	now := unit.Second
	for range 300 {
		b.see(0.1+0.01*r.NormFloat64(), now, &signals[CPUPressure], usual.History)
		now += unit.Second
	}
	return b, now
}

func TestBaselineLearns(t *testing.T) {
	t.Parallel()
	b, _ := taught(rand.New(rand.NewPCG(1, 1)))
	if math.Abs(b.Mean-0.1) > 0.003 || math.Abs(math.Sqrt(b.Var)-0.01) > 0.003 || b.Disturbed {
		t.Errorf("mean %.4f, deviation %.4f after 300 samples", b.Mean, math.Sqrt(b.Var))
	}
	// A slow drift is followed: from 10 to 15 % in two hours.
	now := 1000 * unit.Second
	r := rand.New(rand.NewPCG(2, 2))
	for i := range 7200 {
		now += unit.Second
		if b.see(0.1+0.05*float64(i)/7200+0.01*r.NormFloat64(), now, &signals[CPUPressure], usual.History); b.Disturbed {
			t.Fatalf("a drift is taken for a disturbance after %d s", i)
		}
	}
	if b.Mean < 0.13 {
		t.Errorf("mean %.3f after the drift", b.Mean)
	}
}

func TestDetection(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		samples []float64
		want    bool
	}{
		"as usual":                {[]float64{0.1, 0.12, 0.09, 0.11, 0.1}, false},
		"three high":              {[]float64{0.3, 0.3, 0.3}, true},
		"two high":                {[]float64{0.3, 0.3}, false},
		"not in a row":            {[]float64{0.3, 0.3, 0.1, 0.3, 0.3}, false},
		"3 sigma, not the margin": {[]float64{0.145, 0.145, 0.145, 0.145}, false},
		"four calm after":         {[]float64{0.3, 0.3, 0.3, 0.1, 0.1, 0.1, 0.1}, true},
		"five calm after":         {[]float64{0.3, 0.3, 0.3, 0.1, 0.1, 0.1, 0.1, 0.1}, false},
		"between is not calm":     {[]float64{0.3, 0.3, 0.3, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125}, true},
		"calm, then between":      {[]float64{0.3, 0.3, 0.3, 0.1, 0.1, 0.1, 0.1, 0.125, 0.1}, true},
	} {
		b, now := taught(rand.New(rand.NewPCG(1, 1)))
		mean := b.Mean
		for _, x := range tc.samples {
			now += unit.Second
			b.see(x, now, &signals[CPUPressure], usual.History)
		}
		if b.Disturbed != tc.want {
			t.Errorf("%s: disturbed %v", name, b.Disturbed)
		}
		if math.Abs(b.Mean-mean) > 0.002 {
			t.Errorf("%s: high samples moved the mean from %.4f to %.4f", name, mean, b.Mean)
		}
	}
}

func TestLeastAndCold(t *testing.T) {
	t.Parallel()
	var b Baseline
	for i := range 200 {
		b.see(0.001, unit.Micros(i+1)*unit.Second, &signals[CPUPressure], usual.History)
	}
	for i := range 10 {
		b.see(0.049, unit.Micros(i+300)*unit.Second, &signals[CPUPressure], usual.History)
	}
	if b.Disturbed {
		t.Error("49 times as much as usual, but less than counts")
	}
	for name, tc := range map[string]struct {
		n     int
		every unit.Micros
	}{"few samples": {warmSamples - 2, unit.Minute}, "a short time": {100, unit.Second}} {
		var b Baseline
		for i := range tc.n {
			b.see(0.1, unit.Micros(i+1)*tc.every, &signals[CPUPressure], usual.History)
		}
		for i := range 4 {
			b.see(0.9, unit.Micros(tc.n+i+1)*tc.every, &signals[CPUPressure], usual.History)
		}
		if b.Disturbed {
			t.Errorf("%s: disturbed", name)
		}
	}
}

// TestNewNormal: what lasts for half an hour is no disturbance any more.
func TestNewNormal(t *testing.T) {
	t.Parallel()
	b, now := taught(rand.New(rand.NewPCG(1, 1)))
	end := unit.Micros(0)
	for range 3600 {
		now += unit.Second
		if b.see(0.4, now, &signals[CPUPressure], usual.History); !b.Disturbed && b.Count < 100 && end == 0 {
			end = now
		}
	}
	if b.Disturbed || math.Abs(b.Mean-0.4) > 0.01 || end < 30*unit.Minute {
		t.Errorf("mean %.3f, new normal at %d", b.Mean, end)
	}
}

func TestRestartKeepsBaselines(t *testing.T) {
	t.Parallel()
	b, _ := taught(rand.New(rand.NewPCG(1, 1)))
	s := State{At: 9999 * unit.Second, Pods: []PodState{{UID: "a", Signals: [NumSignals]Baseline{CPUPressure: b}}}}
	in := Input{Now: unit.Second, Pods: []Pod{{UID: "a"}}}
	var out Output
	for i := range confirm {
		in.Now = unit.Micros(i+1) * unit.Second
		in.Pods[0].Signals[CPUPressure] = unit.Got[Level](0.5)
		s, out = Step(s, in)
	}
	if len(out.Victims) != 1 || out.Victims[0].Signal != CPUPressure {
		t.Errorf("%+v", out.Victims)
	}
}

// TestNothingMoreIsHeard: a pod that is disturbed and goes idle has no latency any more. Its disturbance ends four and a half minutes after the last
// sample, and that is told, once.
func TestNothingMoreIsHeard(t *testing.T) {
	t.Parallel()
	b := Baseline{Mean: 1000, Var: 100, Count: 300, FirstAt: unit.Second, LastAt: 300 * unit.Second}
	s := State{At: 300 * unit.Second, Pods: []PodState{{UID: "a", Signals: [NumSignals]Baseline{DiskLatency: b}}}}
	var told []string
	step := func(now unit.Micros, latency Level) Output {
		pod := Pod{UID: "a", Name: "prod/web", QoS: protocol.QoSLS}
		if latency > 0 {
			pod.Signals[DiskLatency] = unit.Got(latency)
		}
		var out Output
		s, out = Step(s, Input{Now: now, Pods: []Pod{pod}})
		for _, e := range out.Events {
			told = append(told, e.Name+" "+e.Text)
		}
		return out
	}
	last := 330 * unit.Second
	for at := 310 * unit.Second; at <= last; at += 10 * unit.Second {
		step(at, 20000)
	}
	for at := last + unit.Second; at <= last+6*unit.Minute; at += unit.Second {
		if out := step(at, 0); len(out.Victims) > 0 != (at <= last+270*unit.Second) {
			t.Fatalf("%d s after the last sample: %+v", (at-last)/unit.Second, out.Victims)
		}
	}
	want := []string{
		"prod/web disturbed: disk latency 20 ms, usually 1 ms ± 0.05 ms",
		"prod/web no longer disturbed: nothing new for 4.52 min, at last disk latency 20 ms, usually 1 ms ± 0.05 ms",
	}
	if d := cmp.Diff(want, told); d != "" {
		t.Errorf("told (-want +got):\n%s", d)
	}
}
