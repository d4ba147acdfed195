// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sysctl_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/sysctl"
)

const gib = unit.Bytes(1 << 30)

func num(n int64) *int64 { return &n }

// mainline is a kernel with the parameters of Linux, vendor one that has all.
func mainline() []sysctl.Value {
	return []sysctl.Value{
		{Parameter: sysctl.MinFreeKbytes, Text: "67584\n"}, {Parameter: sysctl.WatermarkScaleFactor, Text: "10"},
		{Parameter: sysctl.SchedFeature, Text: "PLACE_LAG NO_RUN_TO_PARITY HRTICK_DL\n"},
	}
}

func vendor() []sysctl.Value {
	return append(mainline(), sysctl.Value{Parameter: sysctl.MemcgReapBackground, Text: "0"}, sysctl.Value{Parameter: sysctl.PageCacheLimit, Text: "0"},
		sysctl.Value{Parameter: sysctl.SchedGroupIdentity, Text: "1"}, sysctl.Value{Parameter: sysctl.SchedIdleSaverWmark, Text: "0"})
}

func render(out sysctl.Output) string {
	var all []string
	for _, s := range out.Settings {
		all = append(all, s.Parameter.String()+"="+s.Text)
	}
	return strings.Join(all, " ")
}

func TestValues(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		strategy strategy.SystemStrategy
		memory   unit.Bytes
		current  []sysctl.Value
		want     string
		reason   string
		problem  string
	}{
		"nothing given":      {memory: 128 * gib, current: vendor()},
		"documented example": {strategy: strategy.SystemStrategy{MinFreeKbytesFactor: num(100)}, memory: 128 * gib, current: mainline(), want: "vm.min_free_kbytes=1342177", reason: "minFreeKbytesFactor 100 of 128 GiB"},
		"a large node":       {strategy: strategy.SystemStrategy{MinFreeKbytesFactor: num(100)}, memory: 1024 * gib, current: mainline(), want: "vm.min_free_kbytes=10737418"},
		"far too much":       {strategy: strategy.SystemStrategy{MinFreeKbytesFactor: num(10000)}, memory: 100 * gib, current: mainline(), want: "vm.min_free_kbytes=5242880", reason: "held at a twentieth of the memory"},
		"absurd":             {strategy: strategy.SystemStrategy{MinFreeKbytesFactor: num(1 << 62)}, memory: 100 * gib, current: mainline(), want: "vm.min_free_kbytes=5242880"},
		"far too little":     {strategy: strategy.SystemStrategy{MinFreeKbytesFactor: num(1)}, memory: gib, current: mainline(), want: "vm.min_free_kbytes=1024", reason: "raised to the kernel's least"},
		"no memory known":    {strategy: strategy.SystemStrategy{MinFreeKbytesFactor: num(100)}, current: mainline(), problem: "the node's memory is not known"},
		"already there":      {strategy: strategy.SystemStrategy{WatermarkScaleFactor: num(10)}, current: mainline()},
		"watermark":          {strategy: strategy.SystemStrategy{WatermarkScaleFactor: num(150)}, current: mainline(), want: "vm.watermark_scale_factor=150"},
		"watermark, held":    {strategy: strategy.SystemStrategy{WatermarkScaleFactor: num(4000)}, current: mainline(), want: "vm.watermark_scale_factor=400", reason: "4000 held within 1 and 400"},
		"features": {
			strategy: strategy.SystemStrategy{SchedFeatures: map[string]bool{"RUN_TO_PARITY": true, "PLACE_LAG": false, "HRTICK_DL": true}},
			current:  mainline(), want: "sched.features=NO_PLACE_LAG sched.features=RUN_TO_PARITY",
		},
		"a feature of another kernel": {strategy: strategy.SystemStrategy{SchedFeatures: map[string]bool{"ID_EXPELLER": true}}, current: mainline(), problem: "schedFeatures: this kernel has no sched.features ID_EXPELLER"},
		"vendor": {
			strategy: strategy.SystemStrategy{MemcgReapBackGround: num(1), SchedGroupIdentityEnabled: num(0), SchedIdleSaverWmark: num(5000000), PageCacheLimitEnabled: num(1)},
			current:  vendor(), want: "memcg_reaper.reap_background=1 kernel.sched_group_identity_enabled=0 kernel.sched_idle_saver_wmark=5000000 pagecache_limit.enabled=1",
		},
		"vendor's on mainline": {strategy: strategy.SystemStrategy{MemcgReapBackGround: num(1)}, current: mainline(), problem: "systemStrategy.memcgReapBackGround: this kernel has no memcg_reaper.reap_background"},
	} {
		_, out := sysctl.Step(sysctl.State{}, sysctl.Input{Strategy: tc.strategy, Memory: tc.memory, Current: tc.current})
		if render(out) != tc.want || strings.Join(out.Problems, "") == "" != (tc.problem == "") || !strings.Contains(strings.Join(out.Problems, "\n"), tc.problem) {
			t.Errorf("%s: %q, problems %q", name, render(out), out.Problems)
		}
		if len(out.Settings) > 0 && (out.Settings[0].Reason == "" || !strings.Contains(out.Settings[0].Reason, tc.reason)) {
			t.Errorf("%s: reason %q, want %q", name, out.Settings[0].Reason, tc.reason)
		}
	}
	if sysctl.Parameter(99).String() != "unknown" {
		t.Error("names run out")
	}
}

// TestLife: a value is written once, written again when somebody changes it, and the original comes back with the field's
// end, but not over somebody else's value.
func TestLife(t *testing.T) {
	t.Parallel()
	in := sysctl.Input{
		Strategy: strategy.SystemStrategy{WatermarkScaleFactor: num(150), SchedFeatures: map[string]bool{"PLACE_LAG": false}}, Memory: 8 * gib, Current: mainline(),
	}
	write := func(out sysctl.Output) {
		for _, s := range out.Settings {
			i := slices.IndexFunc(in.Current, func(v sysctl.Value) bool { return v.Parameter == s.Parameter })
			if s.Parameter == sysctl.SchedFeature {
				in.Current[i].Text = s.Text + " NO_RUN_TO_PARITY"
				continue
			}
			in.Current[i].Text = s.Text
		}
	}
	var s sysctl.State
	step := func(want string) {
		t.Helper()
		var out sysctl.Output
		if s, out = sysctl.Step(s, in); render(out) != want {
			t.Errorf("%q, want %q", render(out), want)
		}
		write(out)
	}
	step("vm.watermark_scale_factor=150 sched.features=NO_PLACE_LAG")
	step("")
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back sysctl.State
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(s, back); d != "" || len(s.Held) != 2 || s.Held[0].Original != "10" {
		t.Errorf("%+v\n%s", s, d)
	}
	in.Current[1].Text = "42"
	step("vm.watermark_scale_factor=150")
	in.Strategy.WatermarkScaleFactor = num(200)
	step("vm.watermark_scale_factor=200")
	in.Current[2].Text = "PLACE_LAG NO_RUN_TO_PARITY"
	in.Strategy = strategy.SystemStrategy{}
	step("vm.watermark_scale_factor=10")
	step("")
	if len(s.Held) != 0 {
		t.Errorf("left behind: %+v", s)
	}
}
