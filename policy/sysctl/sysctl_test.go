// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sysctl_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/sysctl"
)

const gib = unit.Bytes(1 << 30)

func num(n int64) *int64 { return &n }

func mainline() map[plan.Knob]int64 {
	return map[plan.Knob]int64{plan.VMMinFree: 67584, plan.VMWatermarkScale: 10}
}

func render(out sysctl.Output) string {
	var all []string
	for i := range out.Plan {
		all = append(all, out.Plan[i].Knob.String()+"="+out.Plan[i].Value.String())
	}
	return strings.Join(all, " ")
}

func TestValues(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		strategy strategy.SystemStrategy
		memory   unit.Bytes
		missing  bool
		want     string
		reason   string
		problem  string
	}{
		"nothing given":      {memory: 128 * gib},
		"documented example": {strategy: strategy.SystemStrategy{MinFreeKbytesFactor: num(100)}, memory: 128 * gib, want: "vm.min_free_kbytes=1342177", reason: "minFreeKbytesFactor 100 of 128 GiB"},
		"a large node":       {strategy: strategy.SystemStrategy{MinFreeKbytesFactor: num(100)}, memory: 1024 * gib, want: "vm.min_free_kbytes=10737418"},
		"far too much":       {strategy: strategy.SystemStrategy{MinFreeKbytesFactor: num(10000)}, memory: 100 * gib, want: "vm.min_free_kbytes=5242880", reason: "held at a twentieth of the memory"},
		"absurd":             {strategy: strategy.SystemStrategy{MinFreeKbytesFactor: num(1 << 62)}, memory: 100 * gib, want: "vm.min_free_kbytes=5242880"},
		"far too little":     {strategy: strategy.SystemStrategy{MinFreeKbytesFactor: num(1)}, memory: gib, want: "vm.min_free_kbytes=1024", reason: "raised to the kernel's least"},
		"no memory known":    {strategy: strategy.SystemStrategy{MinFreeKbytesFactor: num(100)}, problem: "the node's memory is not known"},
		"already there":      {strategy: strategy.SystemStrategy{WatermarkScaleFactor: num(10)}},
		"watermark":          {strategy: strategy.SystemStrategy{WatermarkScaleFactor: num(150)}, want: "vm.watermark_scale_factor=150"},
		"watermark, held":    {strategy: strategy.SystemStrategy{WatermarkScaleFactor: num(4000)}, want: "vm.watermark_scale_factor=400", reason: "4000 held within 1 and 400"},
		"an old kernel":      {strategy: strategy.SystemStrategy{WatermarkScaleFactor: num(150)}, missing: true, problem: "systemStrategy.watermarkScaleFactor: this kernel has no vm.watermark_scale_factor"},
	} {
		in := sysctl.Input{Strategy: tc.strategy, Memory: tc.memory, Current: mainline()}
		if tc.missing {
			in.Current = nil
		}
		_, out := sysctl.Step(sysctl.State{}, in)
		if render(out) != tc.want || len(out.Problems) == 0 != (tc.problem == "") || !strings.Contains(strings.Join(out.Problems, "\n"), tc.problem) {
			t.Errorf("%s: %q, problems %q", name, render(out), out.Problems)
		}
		if tc.want != "" && !strings.HasPrefix(out.Reason, strings.Replace(tc.want, "=", " ", 1)+": ") {
			t.Errorf("%s: decided %q", name, out.Reason)
		}
		if len(out.Plan) > 0 && (out.Plan[0].Reason == "" || !strings.Contains(out.Plan[0].Reason, tc.reason) || out.Plan[0].Target != (plan.Target{})) {
			t.Errorf("%s: %s, want reason %q", name, &out.Plan[0], tc.reason)
		}
	}
}

// TestRefused: a field whose file is a vendor kernel's or debugfs's is written nowhere and told, each by its name.
func TestRefused(t *testing.T) {
	t.Parallel()
	for name, given := range map[string]strategy.SystemStrategy{
		"memcgReapBackGround": {MemcgReapBackGround: num(1)}, "schedGroupIdentityEnabled": {SchedGroupIdentityEnabled: num(0)},
		"schedIdleSaverWmark": {SchedIdleSaverWmark: num(1)}, "schedFeatures": {SchedFeatures: map[string]bool{"PLACE_LAG": false}},
		"pageCacheLimitEnabled": {PageCacheLimitEnabled: num(1)},
	} {
		_, out := sysctl.Step(sysctl.State{}, sysctl.Input{Strategy: given, Memory: 8 * gib, Current: mainline()})
		if len(out.Plan) > 0 || len(out.Problems) != 1 || !strings.HasPrefix(out.Problems[0], "systemStrategy."+name+": not written by koord-rt: ") {
			t.Errorf("%s: %q, problems %q", name, render(out), out.Problems)
		}
	}
}

// TestLife: a value is written once, written again when somebody changes it, and the original comes back with the field's
// end, but not over somebody else's value.
func TestLife(t *testing.T) {
	t.Parallel()
	both := strategy.SystemStrategy{WatermarkScaleFactor: num(150), MinFreeKbytesFactor: num(100)}
	in := sysctl.Input{Strategy: both, Memory: 8 * gib, Current: mainline()}
	var s sysctl.State
	var out sysctl.Output
	step := func(want string) {
		t.Helper()
		if s, out = sysctl.Step(s, in); render(out) != want {
			t.Errorf("%q, want %q", render(out), want)
		}
		for i := range out.Plan {
			in.Current[out.Plan[i].Knob] = out.Plan[i].Value.Int()
		}
	}
	step("vm.min_free_kbytes=83886 vm.watermark_scale_factor=150")
	step("")
	const stands = "vm.min_free_kbytes 83886: minFreeKbytesFactor 100 of 8 GiB; vm.watermark_scale_factor 150: watermarkScaleFactor"
	if out.Reason != stands {
		t.Errorf("what stands is told as %q, want %q", out.Reason, stands)
	}
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back sysctl.State
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(s, back); d != "" || len(s.Held) != 2 || s.Held[1].Original != 10 {
		t.Errorf("%+v\n%s", s, d)
	}
	in.Current[plan.VMWatermarkScale] = 42
	step("vm.watermark_scale_factor=150")
	in.Strategy.WatermarkScaleFactor = num(200)
	step("vm.watermark_scale_factor=200")
	in.Current[plan.VMMinFree] = 70000 // somebody else's, and none of the strategy's any more
	in.Strategy = strategy.SystemStrategy{}
	step("vm.watermark_scale_factor=10")
	step("")
	if len(s.Held) != 0 || out.Reason != "" {
		t.Errorf("left behind: %+v", s)
	}
}

// TestGivesWay: who sets a value again and again gets it, and is named; another value of the strategy begins anew.
func TestGivesWay(t *testing.T) {
	t.Parallel()
	in := sysctl.Input{Strategy: strategy.SystemStrategy{WatermarkScaleFactor: num(150)}, Memory: 8 * gib, Current: mainline()}
	var s sysctl.State
	writes := 0
	var out sysctl.Output
	fight := func(rounds int) {
		for range rounds {
			s, out = sysctl.Step(s, in) // writes
			writes += len(out.Plan)
			for i := range out.Plan {
				in.Current[plan.VMWatermarkScale] = out.Plan[i].Value.Int()
			}
			s, _ = sysctl.Step(s, in)              // sees it stand
			in.Current[plan.VMWatermarkScale] = 42 // somebody else
		}
	}
	fight(20)
	if writes != 11 || len(out.Problems) != 1 || !strings.Contains(out.Problems[0], "somebody else sets vm.watermark_scale_factor to 42") {
		t.Errorf("%d writes, problems %q", writes, out.Problems)
	}
	in.Strategy.WatermarkScaleFactor = num(151)
	if s, out = sysctl.Step(s, in); render(out) != "vm.watermark_scale_factor=151" || len(out.Problems) != 0 {
		t.Errorf("another value: %q, problems %q", render(out), out.Problems)
	}
	in.Current[plan.VMWatermarkScale] = 42
	in.Strategy.WatermarkScaleFactor = nil
	if s, out = sysctl.Step(s, in); len(out.Plan) != 0 || len(s.Held) != 0 {
		t.Errorf("theirs, and no longer asked for: %q, %+v", render(out), s)
	}
	// A write that fails is no fight.
	s, in = sysctl.State{}, sysctl.Input{Strategy: strategy.SystemStrategy{WatermarkScaleFactor: num(150)}, Memory: 8 * gib, Current: mainline()}
	for range 30 {
		if s, out = sysctl.Step(s, in); render(out) != "vm.watermark_scale_factor=150" {
			t.Fatalf("given up: %q %q", render(out), out.Problems)
		}
	}
}

// A value that the next one was to replace, which was never written, is ours as well: it does not stand for good.
func TestFormerValueIsGivenBack(t *testing.T) {
	t.Parallel()
	in := sysctl.Input{Strategy: strategy.SystemStrategy{WatermarkScaleFactor: num(150)}, Memory: 8 * gib, Current: mainline()}
	s, _ := sysctl.Step(sysctl.State{}, in)
	in.Current[plan.VMWatermarkScale] = 150
	s, _ = sysctl.Step(s, in)
	in.Strategy.WatermarkScaleFactor = num(200)
	var out sysctl.Output
	for range 2 { // both writes are refused, or a life ends before them
		if s, out = sysctl.Step(s, in); render(out) != "vm.watermark_scale_factor=200" {
			t.Fatalf("%q", render(out))
		}
	}
	in.Strategy.WatermarkScaleFactor = nil
	if s, out = sysctl.Step(s, in); render(out) != "vm.watermark_scale_factor=10" {
		t.Errorf("no longer named: %q, %+v", render(out), s)
	}
}
