// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build linux

package main

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/plan"
)

func TestLoopPods(t *testing.T) {
	t.Parallel()
	for cpus, request := range map[int]string{2: "1", 3: "1", 8: "4", 64: "32"} {
		ls, be := loopPods(cpus)
		for _, p := range []interface{ Validate() error }{ls, be} {
			if err := p.Validate(); err != nil {
				t.Error(err)
			}
		}
		c := ls.Containers[0]
		if got := string(c.Resources.Requests["cpu"]); got != request || !strings.Contains(c.Command[2], "$i -lt "+request+" ]") {
			t.Errorf("%d CPUs: request %s, command %s", cpus, got, c.Command[2])
		}
		if len(be.Containers[0].Resources.Requests)+len(be.Containers[0].Resources.Limits) > 0 {
			t.Errorf("the BE pod asks for something: %+v", be)
		}
	}
}

func TestSuppressionIsValid(t *testing.T) {
	t.Parallel()
	spec, err := strategy.Parse([]byte(strategyFile + suppression))
	if err != nil {
		t.Fatal(err)
	}
	if got := spec.ResourceUsedThresholdWithBE; got == nil || !*got.Enable || *got.CPUSuppressPolicy != strategy.SuppressCFSQuota {
		t.Errorf("%+v", got)
	}
}

func TestQuotient(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]float64{"21000 100000": 0.21, "max 100000": math.Inf(1), "-1 100000": math.Inf(1), "150000 50000": 3} {
		if got, err := quotient(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "12", "12 0", "x 100000", "12 x"} {
		if got, err := quotient(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// recorded plays a run: 1.2 CPUs for BE, 0.2 of them from 1 s after the load came at 4 s, and half a step more every second
// after it went.
func recorded() *recording {
	r := &recording{}
	return play(r, func(at time.Duration) sample {
		s := sample{at: at, be: 1.2, may: 1.2}
		switch {
		case r.went != 0:
			s.may = min(0.2*(1+(at-r.went).Seconds()), 1.2)
			s.be = s.may
		case r.came != 0:
			s.ls = 1
			if at > r.came+time.Second {
				s.be, s.may = 0.2, 0.2
			}
		}
		return s
	})
}

// play runs a recording to its end, of what each moment shows.
func play(r *recording, shows func(at time.Duration) sample) *recording {
	for {
		at := time.Duration(len(r.samples)+1) * every
		r.samples = append(r.samples, shows(at))
		switch r.next() {
		case loadComes:
			r.came = at + time.Millisecond
		case loadGoes:
			r.went = at + time.Millisecond
		case end:
			return r
		case goOn:
		}
	}
}

func TestPhases(t *testing.T) {
	t.Parallel()
	r := recorded()
	if r.came.Round(every) != calmFor*every || r.went.Round(every) != (calmFor+loadFor)*every {
		t.Errorf("load from %s to %s", r.came, r.went)
	}
	yielded, returned := r.reactions()
	if yielded.Round(every) != 1500*time.Millisecond || returned.Round(every) != 4500*time.Millisecond {
		t.Errorf("yielded after %s, returned after %s", yielded, returned)
	}
	if err := r.verdict(); err != nil {
		t.Error(err)
	}
	// Without a reaction the phases end all the same, and the verdict says so.
	still := &recording{}
	for i := range 1000 {
		still.samples = append(still.samples, sample{at: time.Duration(i+1) * every, be: 1, may: 1})
		switch still.next() {
		case loadComes:
			still.came = still.samples[i].at + 1
		case loadGoes:
			still.went = still.samples[i].at + 1
		}
		if still.next() == end {
			break
		}
	}
	if n := len(still.samples); n > calmFor+2*most || still.verdict() == nil {
		t.Errorf("%d samples, %v", n, still.verdict())
	}
}

// What does not come back is a fault, unless other programs have taken its place: then it could not be shown, and that is no fault.
func TestVerdict(t *testing.T) {
	t.Parallel()
	run := func(lends bool, returned, lent, others float64) *recording {
		r := &recording{lends: lends}
		return play(r, func(at time.Duration) sample {
			s := sample{at: at, may: 1.2, lent: 1, others: 0.3}
			switch {
			case r.went != 0:
				s.may, s.lent, s.others = returned, lent, others
			case r.came != 0:
				s.may, s.lent = 0.2, 0.4
			}
			return s
		})
	}
	still := func(may float64) *recording {
		return play(&recording{enough: 0.3}, func(at time.Duration) sample { return sample{at: at, may: may, others: 1.9} })
	}
	for name, tc := range map[string]struct {
		run  *recording
		want string
		busy bool
	}{
		"nothing was taken":                  {still(0.4), "BE was not allowed less", false},
		"there was nothing to take":          {still(0.02), "next to nothing when the load came", true},
		"all came back":                      {run(true, 1.2, 1, 0.3), "", false},
		"all came back beside others":        {run(true, 1.2, 1, 1.3), "", false},
		"nothing came back":                  {run(false, 0.2, 0, 0.3), "BE did not get back", false},
		"nothing came back, others are some": {run(false, 0.2, 0, 0.7), "BE did not get back", false},
		"others took it":                     {run(false, 0.2, 0, 0.9), "BE did not get back", true},
		"nothing is lent":                    {run(true, 1.2, 0.4, 0.3), "did not lend more again", false},
		"nothing is lent, for others":        {run(true, 1.2, 0.4, 0.7), "did not lend more again", true},
	} {
		err := tc.run.verdict()
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) || errors.Is(err, errBusy) != tc.busy {
			t.Errorf("%s: %v, want %q, busy %t", name, err, tc.want, tc.busy)
		}
	}
}

func TestBusyTime(t *testing.T) {
	t.Parallel()
	const stat = "cpu  100 20 30 4000 500 6 7 8 90 10\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
	if got, err := busyTime(stat); err != nil || got != 1710*time.Millisecond {
		t.Errorf("%s, %v; want 1.71s: idle and iowait are not busy, guests are users'", got, err)
	}
	for _, text := range []string{"", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3", "cpu 1 2 x 4 5 6 7 8"} {
		if got, err := busyTime(text); err == nil {
			t.Errorf("%q: %s", text, got)
		}
	}
}

func TestPlotAndTable(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		screen screen
		want   string
	}{
		"unicode": {screen{width: 120, unicode: true}, `
  LS used     ▁▁▁▁▁▁▁▁▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▁▁▁▁▁▁▁▁▁▁▁▁▁
  BE used     ██████████▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▃▄▄▅▆▆▇█████
  BE may use  ██████████▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▃▄▄▅▆▆▇█████
  seconds     0        5         10        15
                      ↑ load comes    ↑ load goes
  A full bar is 1.20 CPUs.
`},
		"ASCII": {screen{width: 120}, `
  LS used     ________%%%%%%%%%%%%%%%%_____________
  BE used     ##########...............-==+**%#####
  BE may use  ##########...............-==+**%#####
  seconds     0        5         10        15
                      ^ load comes    ^ load goes
  A full bar is 1.20 CPUs.
`},
		"narrow": {screen{width: 34}, `
  LS used     ____%%%%%%%%_______
  BE used     #####.......-=+%###
  BE may use  #####.......-=+%###
  seconds     0    5    10   15
                  ^ load comes ^ load goes
  A full bar is 1.20 CPUs.
`},
	} {
		var out bytes.Buffer
		tc.screen.out = &out
		recorded().plot(&tc.screen)
		if d := cmp.Diff(strings.TrimPrefix(tc.want, "\n"), out.String()); d != "" {
			t.Errorf("%s: (-want +got)\n%s", name, d)
		}
	}
	var out bytes.Buffer
	recorded().table(&screen{out: &out, width: 120})
	want := `
  CPUs             average of   LS used  BE used  BE may use
  before the load  2.5-4.0 s    0.00     1.20     1.20
  under the load   10.5-12.0 s  1.00     0.20     0.20
  after the load   17.0-18.5 s  0.00     1.20     1.20
`
	if d := cmp.Diff(strings.TrimPrefix(want, "\n"), out.String()); d != "" {
		t.Errorf("table (-want +got)\n%s", d)
	}
}

func TestSmallest(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	lines := `{"t":"2026-05-01T12:00:09Z","target":{"Level":QOS,"Cgroup":"/kubepods/besteffort"},"knob":"cpu.quota","want":"90000","reason":"later","via":"direct"}
{"t":"2026-05-01T12:00:04Z","target":{"Level":QOS,"Cgroup":"/kubepods/besteffort"},"knob":"cpu.quota","want":"21000","reason":"this one","via":"direct"}
{"t":"2026-05-01T12:00:03Z","target":{"Level":QOS,"Cgroup":"/kubepods/besteffort"},"knob":"cpu.quota","want":"60000","reason":"on the way","via":"direct"}
{"t":"2026-05-01T12:00:03Z","target":{"Level":POD,"Pod":"x"},"knob":"cpu.quota","want":"1000","reason":"a pod's","via":"direct"}
{"t":"2026-05-01T12:00:02Z","target":{"Level":QOS},"knob":"cpu.shares","want":"2","reason":"shares","via":"direct"}
not a record
{"t":"2026-05-01T11:59:59Z","target":{"Level":QOS},"knob":"cpu.quota","want":"2000","reason":"earlier","via":"direct"}
`
	level := func(l plan.Level) string { return strconv.Itoa(int(l)) }
	lines = strings.NewReplacer("QOS", level(plan.LevelQoS), "POD", level(plan.LevelPod)).Replace(lines)
	if got := smallest(strings.NewReader(lines), at, at.Add(8*time.Second)); got != "this one" {
		t.Errorf("%q", got)
	}
	if got := smallest(strings.NewReader(lines), at.Add(5*time.Second), at.Add(8*time.Second)); got != "this one" {
		t.Errorf("what stood: %q", got)
	}
	if got := smallest(strings.NewReader(""), at, at.Add(time.Hour)); got != "" {
		t.Errorf("of nothing: %q", got)
	}
}

func TestUnicodeLocale(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		env  map[string]string
		want bool
	}{
		"none":         {},
		"LANG":         {map[string]string{"LANG": "en_US.UTF-8"}, true},
		"C.utf8":       {map[string]string{"LANG": "C.utf8"}, true},
		"C":            {map[string]string{"LANG": "C"}, false},
		"LC_ALL wins":  {map[string]string{"LC_ALL": "C", "LANG": "de_DE.UTF-8"}, false},
		"LC_CTYPE too": {map[string]string{"LC_CTYPE": "C.UTF-8", "LANG": "C"}, true},
	} {
		if got := unicodeLocale(func(k string) string { return tc.env[k] }); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestLiveLineIsReplaced(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := &screen{out: &out, width: 80, terminal: true}
	s.live("one")
	s.live("two")
	s.line("done")
	if want := "\r\x1b[Kone\r\x1b[Ktwo\r\x1b[Kdone\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
	out.Reset()
	s = &screen{out: &out, width: 80}
	s.live("one")
	s.line("done")
	if out.String() != "done\n" {
		t.Errorf("%q", out.String())
	}
}
