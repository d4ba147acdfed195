// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package llc_test

import (
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/policy/llc"
	pt "github.com/koord-rt/koord-rt/policy/policytest"
)

const strategyText = "resourceQOSStrategy: {lsClass: {resctrlQOS: {enable: true}}, beClass: {resctrlQOS: {enable: true, catRangeEndPercent: 30, mbaPercent: 25}}}"

func TestMask(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		full       uint64
		least      int
		start, end int64
		want       uint64
	}{
		{0xfffff, 1, 0, 30, 0x3f}, // the documented example
		{0xfffff, 1, 0, 100, 0xfffff},
		{0xfffff, 1, 30, 100, 0xfffc0},
		{0x7ff, 1, 0, 30, 0xf}, // 11 ways: ⌈3.3⌉
		{0x7ff, 2, 0, 1, 0x3},
		{0x7ff, 3, 99, 100, 0x700},
		{0x7ff, 2, 50, 50, 0x30},
		{0xf, 1, -5, 500, 0xf},
		{^uint64(0), 1, 0, 100, ^uint64(0)},
	} {
		if got := llc.Mask(tc.full, tc.least, tc.start, tc.end); got != tc.want {
			t.Errorf("Mask(%x, %d, %d, %d) = %x, want %x", tc.full, tc.least, tc.start, tc.end, got, tc.want)
		}
	}
}

func TestMaskIsContiguousAndLargeEnough(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for range 20000 {
		n := 1 + r.IntN(64)
		full := ^uint64(0) >> (64 - n)
		least := 1 + r.IntN(n)
		m := llc.Mask(full, least, int64(r.IntN(140)-20), int64(r.IntN(140)-20))
		if low := m >> bits.TrailingZeros64(m); m == 0 || m&^full != 0 || low&(low+1) != 0 || bits.OnesCount64(m) < least {
			t.Fatalf("mask %x of %x with at least %d", m, full, least)
		}
	}
}

func TestBandwidth(t *testing.T) {
	t.Parallel()
	intel := node.RDT{MBMin: 10, MBGran: 10, MBMax: 100}
	amd := node.RDT{MBUnit: node.MBAbsolute, MBMin: 1, MBGran: 1}
	mbps := node.RDT{MBUnit: node.MBMBps, MBMax: 50000}
	for _, tc := range []struct {
		rdt           *node.RDT
		percent, want int64
	}{
		{&intel, 25, 30}, {&intel, 30, 30}, {&intel, 1, 10}, {&intel, 100, 100}, {&intel, 500, 100}, {&intel, -1, 10},
		{&amd, 50, 80}, {&amd, 100, 2048}, {&amd, 25, 40}, {&amd, 0, 1},
		{&mbps, 50, 25000},
	} {
		if got := llc.Bandwidth(tc.rdt, tc.percent); got != tc.want {
			t.Errorf("Bandwidth(%v, %d) = %d, want %d", tc.rdt.MBUnit, tc.percent, got, tc.want)
		}
	}
}

func groups(pl plan.Plan) map[string]string {
	out := map[string]string{}
	for i := range pl {
		out[pl[i].Target.Cgroup+" "+pl[i].Key] = pl[i].Value.String()
	}
	return out
}

func same(t *testing.T, pl plan.Plan, want map[string]string) {
	t.Helper()
	got := groups(pl)
	if len(got) != len(want) || len(pl) != len(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for k, w := range want {
		if got[k] != w {
			t.Errorf("%s = %q, want %q", k, got[k], w)
		}
	}
}

func TestGroups(t *testing.T) {
	t.Parallel()
	base := map[string]string{
		"LS L3": "0=fffff;1=fffff", "LS MB": "0=100;1=100", "BE L3": "0=3f;1=3f", "BE MB": "0=30;1=30",
	}
	for name, tc := range map[string]struct {
		change func(*node.View)
		want   map[string]string
	}{
		"Intel":           {change: func(*node.View) {}, want: base},
		"CDP":             {change: func(v *node.View) { v.Kernel.RDT.L3CDP, v.Kernel.RDT.MB = true, false }, want: map[string]string{"LS L3CODE": "0=fffff;1=fffff", "LS L3DATA": "0=fffff;1=fffff", "BE L3CODE": "0=3f;1=3f", "BE L3DATA": "0=3f;1=3f"}},
		"bandwidth only":  {change: func(v *node.View) { v.Kernel.RDT.L3 = false }, want: map[string]string{"LS MB": "0=100;1=100", "BE MB": "0=30;1=30"}},
		"gaps in the ids": {change: func(v *node.View) { v.Kernel.RDT.L3IDs, v.Kernel.RDT.MBIDs = []int{0, 8}, []int{3} }, want: map[string]string{"LS L3": "0=fffff;8=fffff", "LS MB": "3=100", "BE L3": "0=3f;8=3f", "BE MB": "3=30"}},
		"not mounted":     {change: func(v *node.View) { v.Kernel.RDT.Mounted = false }},
		"off":             {change: func(v *node.View) { v.Modes[protocol.FeatureLLC] = node.Off }},
		"ceded":           {change: func(v *node.View) { v.Ceded = plan.KnobSet(plan.RDTSchemata) }},
		"nothing enabled": {change: func(v *node.View) { pt.YAML(t, v, "") }},
	} {
		v := pt.YAML(t, pt.View(), strategyText)
		tc.change(v)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			same(t, llc.Groups(v), tc.want)
		})
	}
	v := pt.YAML(t, pt.View(), strategyText)
	v.Modes[protocol.FeatureLLC] = node.Observe
	for _, s := range llc.Groups(v) {
		if !s.Observe || s.Target.Level != plan.LevelGroup {
			t.Errorf("%s: want an observed setting of a group", &s)
		}
	}
}

func TestPodGroup(t *testing.T) {
	t.Parallel()
	percent := int64(50)
	for name, tc := range map[string]struct {
		ask     *protocol.Resctrl
		change  func(*node.View)
		group   string
		want    map[string]string
		problem string
	}{
		"nobody asks": {},
		"both": {ask: &protocol.Resctrl{LLC: &protocol.Range{Start: 0, End: 50}, MBPercent: &percent}, group: "koordlet-uid-1", want: map[string]string{
			"koordlet-uid-1 L3": "0=3ff;1=3ff", "koordlet-uid-1 MB": "0=50;1=50",
		}},
		"per cache": {ask: &protocol.Resctrl{LLCPerCache: map[int]protocol.Range{1: {Start: 0, End: 30}}, MBPerCache: map[int]int64{0: 25}}, group: "koordlet-uid-1", want: map[string]string{
			"koordlet-uid-1 L3": "0=fffff;1=3f", "koordlet-uid-1 MB": "0=30;1=100",
		}},
		"a cache the node has not":    {ask: &protocol.Resctrl{LLCPerCache: map[int]protocol.Range{9: {Start: 0, End: 30}}}, problem: "no cache 9"},
		"bandwidth on a node without": {ask: &protocol.Resctrl{MBPercent: &percent}, change: func(v *node.View) { v.Kernel.RDT.MB = false }, problem: "no memory bandwidth"},
		"a bandwidth of no scale":     {ask: &protocol.Resctrl{MBPercent: &percent}, change: func(v *node.View) { v.Kernel.RDT.MBUnit, v.Kernel.RDT.MBMax = node.MBMBps, 0 }, problem: "not known"},
		"lines of somebody else's":    {ask: &protocol.Resctrl{MBPercent: &percent}, change: func(v *node.View) { v.Ceded = plan.KnobSet(plan.RDTSchemata) }, group: "koordlet-uid-1"},
		"capped": {ask: &protocol.Resctrl{MBPercent: &percent}, change: func(v *node.View) { v.Limits.MBAPercentMax = 20 }, group: "koordlet-uid-1", want: map[string]string{
			"koordlet-uid-1 MB": "0=20;1=20",
		}},
		"no bandwidth control": {ask: &protocol.Resctrl{LLC: &protocol.Range{Start: 0, End: 50}, MBPercent: &percent}, change: func(v *node.View) { v.Kernel.RDT.MB = false }, group: "koordlet-uid-1", want: map[string]string{
			"koordlet-uid-1 L3": "0=3ff;1=3ff",
		}, problem: "no memory bandwidth"},
		"forbidden":   {ask: &protocol.Resctrl{MBPercent: &percent}, change: func(v *node.View) { v.Limits.PodResctrl = false }, problem: "switched off"},
		"not mounted": {ask: &protocol.Resctrl{MBPercent: &percent}, change: func(v *node.View) { v.Kernel.RDT = node.RDT{Why: "no resctrl"} }, problem: "no resctrl"},
		"opted out":   {ask: &protocol.Resctrl{MBPercent: &percent}, change: func(v *node.View) { v.OptOutNamespaces = []string{"default"} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, p := pt.View(), pt.Pod(protocol.QoSLS)
			if tc.change != nil {
				tc.change(v)
			}
			p.Ask.Resctrl = tc.ask
			group, pl, problems := llc.PodGroup(v, p)
			if group != tc.group {
				t.Errorf("group %q, want %q", group, tc.group)
			}
			same(t, pl, tc.want)
			if of, _, _ := llc.GroupOf(v, p); of != group && name != "opted out" {
				t.Errorf("in the group %q, made is %q", of, group)
			}
			if tc.problem == "" && len(problems) > 0 || tc.problem != "" && (len(problems) != 1 || !strings.Contains(problems[0].String(), tc.problem)) {
				t.Errorf("problems %v, want %q", problems, tc.problem)
			}
		})
	}
}
