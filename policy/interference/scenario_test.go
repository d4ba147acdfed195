// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package interference

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
)

// world is a node in which one thing disturbs the LS pods.
type world struct {
	r *rand.Rand
	s State
	// now in seconds.
	now int
	// batch pods: what each would use if nobody capped it, by second.
	batch map[string]func(sec int) float64
	// harm is the CPU pressure that the LS pods feel, of what the batch pods really use.
	harm   func(sec int, used map[string]float64) float64
	signal Signal
	pace   Pace
	events []string
	capped map[string]int // seconds by pod
	caps   []Cap
}

func (w *world) run(seconds int) {
	if w.capped == nil {
		w.capped, w.r = map[string]int{}, rand.New(rand.NewPCG(4, 2))
	}
	for range seconds {
		w.now++
		used := map[string]float64{}
		in := Input{Now: unit.Micros(w.now) * unit.Second, Pace: w.pace}
		for _, name := range []string{"a", "b", "c", "d"} {
			if w.batch[name] == nil {
				continue
			}
			used[name] = w.batch[name](w.now) * (1 + 0.05*w.r.Float64())
			for _, c := range w.caps {
				if c.Pod == name {
					used[name] = min(used[name], float64(c.Limit))
				}
			}
			if w.batch[name](w.now) < 0 {
				continue // not there yet
			}
			p := Pod{UID: name, Name: "batch/" + name, QoS: protocol.QoSBE}
			p.Used[CPU] = unit.Got(Level(used[name]))
			in.Pods = append(in.Pods, p)
		}
		for _, name := range []string{"web", "db"} {
			p := Pod{UID: name, Name: "prod/" + name, QoS: protocol.QoSLS}
			p.Used[CPU] = unit.Got(Level(2 + 0.1*w.r.NormFloat64()))
			p.Signals[w.signal] = unit.Got(Level(max(w.harm(w.now, used)+0.005*w.r.NormFloat64(), 0)))
			in.Pods = append(in.Pods, p)
		}
		var out Output
		w.s, out = Step(w.s, in)
		w.caps = out.Caps
		for _, c := range out.Caps {
			w.capped[c.Pod]++
		}
		for _, e := range out.Events {
			w.events = append(w.events, e.Name+" "+e.Text)
		}
	}
}

func (w *world) saw(what string) int {
	n := 0
	for _, e := range w.events {
		if strings.Contains(e, what) {
			n++
		}
	}
	return n
}

func steady(x float64) func(int) float64 { return func(int) float64 { return x } }

// within is x between two seconds and y otherwise.
func within(from, to int, x, y float64) func(int) float64 {
	return func(sec int) float64 {
		if sec >= from && sec < to {
			return x
		}
		return y
	}
}

// TestAntagonistIsFoundHeldAndReleased: b begins to burn CPUs at 600 s and stops at 1200 s. LS pods feel 5 % pressure and
// what b takes above two CPUs.
func TestAntagonistIsFoundHeldAndReleased(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]func(int) float64{"grows": within(600, 1200, 8, 1), "arrives": within(600, 1200, 8, -1)} {
		w := &world{
			signal: CPUPressure,
			batch:  map[string]func(int) float64{"a": steady(6), "b": b, "c": steady(3)},
			harm:   func(_ int, used map[string]float64) float64 { return 0.05 + 0.05*max(used["b"]-2, 0) },
		}
		w.run(599)
		if len(w.events) > 0 {
			t.Fatalf("%s: before anything happened: %v", name, w.events)
		}
		w.run(60)
		if len(w.caps) == 0 || w.caps[0].Pod != "b" || w.caps[0].Phase != Guilty || w.capped["a"]+w.capped["c"] > 0 {
			t.Fatalf("%s: after a minute: %+v\n%s", name, w.caps, strings.Join(w.events, "\n"))
		}
		w.run(1540)
		if len(w.caps) > 0 || w.capped["a"]+w.capped["c"] > 0 || w.saw("batch/b guilty") == 0 || name == "grows" && w.saw("batch/b released: nobody is disturbed") == 0 {
			t.Errorf("%s: at the end %+v, seconds capped %v\n%s", name, w.caps, w.capped, strings.Join(w.events, "\n"))
		}
		if again := w.saw("prod/web disturbed: CPU pressure"); again == 0 || again > 5 || w.saw("prod/web no longer disturbed") == 0 {
			t.Errorf("%s: %s", name, strings.Join(w.events, "\n"))
		}
	}
}

// TestInnocentIsReleased: something outside disturbs the LS pods while a uses most of what BE uses.
func TestInnocentIsReleased(t *testing.T) {
	t.Parallel()
	w := &world{
		signal: CPUPressure, batch: map[string]func(int) float64{"a": steady(6), "b": steady(1)},
		harm: func(sec int, _ map[string]float64) float64 { return within(600, 900, 0.4, 0.05)(sec) },
	}
	w.run(1000)
	if w.saw("batch/a innocent") != 1 || w.capped["a"] > 30 || w.capped["b"] > 0 || len(w.caps) > 0 {
		t.Errorf("capped %v, %+v\n%s", w.capped, w.caps, strings.Join(w.events, "\n"))
	}
	if w.s.find("a", 0).Innocent[CPU] == 0 {
		t.Error("nothing remembers the acquittal")
	}
}

// TestPace: with shorter times an antagonist that comes after half a minute is found guilty within ten seconds, and free again
// within half a minute of its end. By default nobody is judged before two minutes.
// TestWhatComesAndGoes: LS pods feel 50 % for five seconds of forty, whatever anybody does. Who is on trial meanwhile is found guilty, for it passes; held, he
// is found innocent when it comes although he was cut three times, and is left alone for half an hour. Who brings it himself, less at each cut, stays
// held, however often others are calm in between.
func TestWhatComesAndGoes(t *testing.T) {
	t.Parallel()
	w := &world{
		signal: CPUPressure, batch: map[string]func(int) float64{"a": steady(8)},
		harm: func(sec int, _ map[string]float64) float64 {
			if sec > 600 && sec%40 < 5 {
				return 0.5
			}
			return 0.05
		},
	}
	w.run(900)
	if w.saw("guilty") != 1 || w.saw("innocent, released: others are disturbed anew, and again, although it is held to 0.5") != 1 || w.capped["a"] > 200 {
		t.Errorf("held for %d s: %q", w.capped["a"], w.events)
	}
	before := w.capped["a"]
	if w.run(1200); w.capped["a"] != before {
		t.Errorf("held again for %d s within half an hour: %q", w.capped["a"]-before, w.events)
	}
	w = &world{
		signal: CPUPressure, batch: map[string]func(int) float64{"a": steady(8)},
		harm: func(sec int, used map[string]float64) float64 {
			if sec > 600 && sec%40 < 30 {
				return 0.05 + 0.1*max(used["a"]-2, 0)
			}
			return 0.05
		},
	}
	w.run(1200)
	if w.saw("innocent") > 0 || w.capped["a"] < 500 {
		t.Errorf("held for %d s: %q", w.capped["a"], w.events)
	}
}

func TestPace(t *testing.T) {
	t.Parallel()
	short := Pace{History: 25 * unit.Second, Trial: 4 * unit.Second, Calm: 6 * unit.Second}
	for _, tc := range []struct {
		pace  Pace
		found bool
	}{{short, true}, {Pace{}, false}} {
		w := &world{
			signal: CPUPressure, pace: tc.pace, batch: map[string]func(int) float64{"a": within(30, 50, 8, 1)},
			harm: func(_ int, used map[string]float64) float64 { return 0.05 + 0.05*max(used["a"]-2, 0) },
		}
		w.run(42)
		if n := w.saw("batch/a guilty"); n > 0 != tc.found {
			t.Errorf("%+v: guilty %d times\n%s", tc.pace, n, strings.Join(w.events, "\n"))
		}
		w.run(38)
		if n := w.saw("batch/a released: nobody is disturbed"); n > 0 != tc.found || len(w.caps) > 0 {
			t.Errorf("%+v: released %d times; %+v\n%s", tc.pace, n, w.caps, strings.Join(w.events, "\n"))
		}
	}
}

// TestNextSuspect: the greater user is tried first and is innocent, then comes the one that does it.
func TestNextSuspect(t *testing.T) {
	t.Parallel()
	both := func(x float64) func(int) float64 { return within(600, 1500, x, 1) }
	w := &world{
		signal: CPUPressure, batch: map[string]func(int) float64{"a": both(9), "b": both(5)},
		harm: func(_ int, used map[string]float64) float64 { return 0.05 + 0.08*max(used["b"]-2, 0) },
	}
	w.run(800)
	if w.saw("batch/a innocent") != 1 || w.saw("batch/b guilty") != 1 || len(w.caps) != 1 || w.caps[0].Pod != "b" {
		t.Errorf("%+v\n%s", w.caps, strings.Join(w.events, "\n"))
	}
}

// TestNobodyIsAccusedForNothing: noise, throttling by a pod's own limit, and load of its own.
func TestNobodyIsAccusedForNothing(t *testing.T) {
	t.Parallel()
	noise := rand.New(rand.NewPCG(8, 8))
	for name, w := range map[string]*world{
		"noise":     {signal: CPUPressure, harm: func(int, map[string]float64) float64 { return 0.1 + 0.02*noise.NormFloat64() }},
		"own limit": {signal: Throttled, harm: func(sec int, _ map[string]float64) float64 { return within(600, 900, 0.8, 0.01)(sec) }},
		"small":     {signal: MemoryPressure, harm: func(sec int, _ map[string]float64) float64 { return within(600, 900, 0.015, 0.0001)(sec) }},
	} {
		w.batch = map[string]func(int) float64{"a": steady(6), "b": within(600, 900, 8, 1)}
		w.run(1200)
		if len(w.capped) > 0 {
			t.Errorf("%s: capped %v\n%s", name, w.capped, strings.Join(w.events, "\n"))
		}
		if name == "own limit" && (w.saw("prod/web disturbed: CPU throttling") != 1 || w.s.Resource[CPU].Now != 0) {
			t.Errorf("%s", strings.Join(w.events, "\n"))
		}
	}
}

// TestBusyIsNotDisturbed: a pod whose own use doubles feels more pressure; nobody else did it.
func TestBusyIsNotDisturbed(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(6, 6))
	var s State
	for sec := range 900 {
		load := within(600, 800, 2, 1)(sec)
		web := Pod{UID: "web", QoS: protocol.QoSLS}
		web.Used[CPU] = unit.Got(Level(2 * load * (1 + 0.02*r.NormFloat64())))
		web.Signals[CPUPressure] = unit.Got(Level(0.05 * load * load))
		batch := Pod{UID: "a", QoS: protocol.QoSBE}
		batch.Used[CPU] = unit.Got[Level](6)
		var out Output
		if s, out = Step(s, Input{Now: unit.Micros(sec+1) * unit.Second, Pods: []Pod{web, batch}}); len(out.Victims)+len(out.Caps) > 0 {
			t.Fatalf("second %d: %+v %+v", sec, out.Victims, out.Caps)
		}
	}
}

// TestBusyAgainstItsLimit: whoever asks for more than its limit uses more, up to that, and is stopped. That it is stopped is told, however much more it
// uses; nobody else did it.
func TestBusyAgainstItsLimit(t *testing.T) {
	t.Parallel()
	for name, usual := range map[string]float64{"small": 0.01, "half": 1, "nearly all": 1.9} {
		var s State
		var told []string
		for sec := range 900 {
			web, over := Pod{UID: "web", QoS: protocol.QoSLS}, sec >= 600 && sec < 800
			web.Used[CPU], web.Signals[Throttled] = unit.Got(Level(usual)), unit.Got[Level](0.01)
			if over {
				web.Used[CPU], web.Signals[Throttled] = unit.Got[Level](2), unit.Got[Level](0.9)
			}
			batch := Pod{UID: "a", QoS: protocol.QoSBE}
			batch.Used[CPU] = unit.Got[Level](6)
			var out Output
			s, out = Step(s, Input{Now: unit.Micros(sec+1) * unit.Second, Pods: []Pod{web, batch}})
			for _, e := range out.Events {
				text, _, _ := strings.Cut(e.Text, ":")
				told = append(told, e.Pod+" "+text)
			}
			if len(out.Caps) > 0 || s.Resource[CPU].Now != 0 {
				t.Fatalf("%s: second %d: %+v, distress %g", name, sec, out.Caps, s.Resource[CPU].Now)
			}
		}
		if d := cmp.Diff([]string{"web disturbed", "web no longer disturbed"}, told); d != "" {
			t.Errorf("%s: (-want +got)\n%s", name, d)
		}
	}
}

// TestSlowSignal: CPI comes once a minute. Three samples are three minutes, and the trial waits for two new ones.
func TestSlowSignal(t *testing.T) {
	t.Parallel()
	var s State
	var phases []string
	r := rand.New(rand.NewPCG(6, 7))
	limit := math.Inf(1)
	for sec := range 4200 {
		busy := within(2400, 3600, 4, 0.5)(sec)
		antagonist := Pod{UID: "a", Name: "batch/a", QoS: protocol.QoSBE}
		antagonist.Used[CPU] = unit.Got(Level(min(busy, limit)))
		web := Pod{UID: "web", Name: "prod/web", QoS: protocol.QoSLSR}
		if sec%60 == 30 {
			web.Signals[CPI] = unit.Got(Level(1.2 + 0.3*max(min(busy, limit)-1, 0) + 0.02*r.NormFloat64()))
		}
		var out Output
		s, out = Step(s, Input{Now: unit.Micros(sec+1) * unit.Second, Pods: []Pod{web, antagonist}})
		limit = math.Inf(1)
		for _, c := range out.Caps {
			limit = float64(c.Limit)
			if c.Resource != Cache || c.CPU() != unit.MilliCPU(limit*1000+0.5) {
				t.Fatalf("%+v", c)
			}
			if len(phases) == 0 || phases[len(phases)-1] != c.Phase.String() {
				phases = append(phases, c.Phase.String())
			}
		}
	}
	if got := strings.Join(phases, ", "); !strings.HasPrefix(got, "on trial, guilty") || !math.IsInf(limit, 1) {
		t.Errorf("phases %s, limit at the end %v", got, limit)
	}
}

func TestOutputAndState(t *testing.T) {
	t.Parallel()
	w := &world{
		signal: CPUPressure, batch: map[string]func(int) float64{"a": within(300, 600, 8, 1), "b": steady(2)},
		harm: func(_ int, used map[string]float64) float64 { return 0.05 + 0.05*max(used["a"]-2, 0) },
	}
	w.run(306)
	data, err := json.Marshal(w.s)
	if err != nil {
		t.Fatal(err)
	}
	var back State
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(w.s, back); d != "" {
		t.Errorf("state through JSON:\n%s", d)
	}
	if len(w.caps) != 1 || math.Abs(float64(w.caps[0].Limit)-4) > 0.3 || w.caps[0].CPU() < 3700 {
		t.Fatalf("%+v", w.caps)
	}
	for _, want := range []string{"on trial: uses 8.", "of what BE uses", "correlation with the distress of others "} {
		if !strings.Contains(w.caps[0].Reason, want) {
			t.Errorf("reason %q lacks %q", w.caps[0].Reason, want)
		}
	}
	// Pods that end take their suspicion and their history with them.
	next, out := Step(w.s, Input{Now: unit.Micros(w.now+1) * unit.Second})
	if len(out.Caps)+len(next.Pods)+len(next.Suspects) > 0 {
		t.Errorf("left behind: %+v", next)
	}
	// Nothing measured: nothing changes but the clock.
	in := Input{Now: unit.Micros(w.now+1) * unit.Second}
	for _, p := range w.s.Pods {
		in.Pods = append(in.Pods, Pod{UID: p.UID, QoS: map[bool]protocol.QoS{true: protocol.QoSBE, false: protocol.QoSLS}[len(p.UID) == 1]})
	}
	if next, out = Step(w.s, in); len(out.Caps) != 1 || len(out.Events) != 0 || cmp.Diff(w.s.Pods, next.Pods) != "" {
		t.Errorf("%+v %+v\n%s", out.Caps, out.Events, cmp.Diff(w.s.Pods, next.Pods))
	}
	for _, name := range []string{Signal(99).String(), Resource(99).String()} {
		if name != "unknown" {
			t.Errorf("name %q", name)
		}
	}
	if Phase(9).String() != "releasing" {
		t.Error("names run out")
	}
}

// TestGarbage: whatever is measured, nothing breaks, caps are positive and belong to BE pods that are there.
func TestGarbage(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 9))
	values := []Level{Level(math.NaN()), Level(math.Inf(1)), -5, 0, 1e300, 0.5, 3}
	var s State
	for sec := range 3000 {
		in := Input{Now: unit.Micros(r.Int64N(int64(sec+1)*1e6 + 1))}
		if r.IntN(4) > 0 {
			in.Now = unit.Micros(sec+1) * unit.Second
		}
		for i := range r.IntN(6) {
			p := Pod{UID: string(rune('a' + i)), QoS: protocol.QoS(r.IntN(6))}
			for k := range p.Signals {
				p.Signals[k] = unit.Measured[Level]{V: values[r.IntN(len(values))], OK: r.IntN(2) == 0}
			}
			for k := range p.Used {
				p.Used[k] = unit.Measured[Level]{V: values[r.IntN(len(values))], OK: r.IntN(2) == 0}
			}
			in.Pods = append(in.Pods, p)
		}
		var out Output
		s, out = Step(s, in)
		if _, err := json.Marshal(s); err != nil {
			t.Fatalf("second %d: %v", sec, err)
		}
		for _, c := range out.Caps {
			if !(c.Limit > 0) || s.find(c.Pod, 0) == nil || c.Reason == "" {
				t.Fatalf("%+v", c)
			}
		}
	}
}
