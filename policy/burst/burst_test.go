// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package burst_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/burst"
)

func ptr[T any](v T) *T { return &v }

// auto is a strategy with policy auto, 300 % and the given bucket period.
func auto(seconds int64) strategy.CPUBurstStrategy {
	full := strategy.Effective(strategy.Spec{CPUBurstStrategy: &strategy.CPUBurstStrategy{
		Policy: ptr(strategy.BurstAuto), CFSQuotaBurstPeriodSeconds: &seconds,
	}})
	return *full.CPUBurstStrategy
}

// pool is a share pool of 10 CPUs of which a percentage is used.
func pool(percent float64) burst.Pool {
	return burst.Pool{
		CPUs: 16000, Requests: 6000, Node: unit.Got(unit.MilliCPU(percent*100) + 5000), Exclusive: unit.Got[unit.MilliCPU](3000), BE: unit.Got[unit.MilliCPU](2000),
	}
}

// busy is an LS pod with one container of two CPUs that uses a percentage of them and is throttled in a part of its
// periods.
func busy(percent float64, throttled unit.Fraction) burst.Pod {
	return burst.Pod{UID: "uid", QoS: protocol.QoSLS, Base: 200000, Containers: []burst.Container{{
		ID: "c", Base: 200000, Used: unit.Got(unit.MilliCPU(percent * 20)), Throttled: unit.Got(throttled),
	}}}
}

// run steps once a second and returns the container's quota after each step.
func run(s burst.State, in burst.Input, n int) (burst.State, []unit.Micros, burst.Output) {
	var out burst.Output
	var quotas []unit.Micros
	for range n {
		in.Now += unit.Second
		s, out = burst.Step(s, in)
		quotas = append(quotas, quota(&out, 200000))
	}
	return s, quotas, out
}

func quota(out *burst.Output, base unit.Micros) unit.Micros {
	for _, r := range out.Raises {
		if r.Container == "c" {
			return r.Quota
		}
	}
	return base
}

func TestLadder(t *testing.T) {
	t.Parallel()
	in := burst.Input{Strategy: auto(-1), Pool: pool(20), Pods: []burst.Pod{busy(150, 0.4)}}
	s, got, out := run(burst.State{}, in, 9)
	if d := cmp.Diff([]unit.Micros{240000, 288000, 345600, 414720, 497664, 597197, 600000, 600000, 600000}, got); d != "" {
		t.Errorf("up (-want +got):\n%s", d)
	}
	want := []burst.Raise{
		{Pod: "uid", Container: "c", Factor: 3, Plus: 400000, Quota: 600000, Reason: "throttled in 40% of its periods while the share pool is idle"},
		{Pod: "uid", Plus: 400000, Quota: 600000, Reason: "room for 1 container that burst"},
	}
	if d := cmp.Diff(want, out.Raises); d != "" || out.Changed {
		t.Errorf("changed %v, raises (-want +got):\n%s", out.Changed, d)
	}
	in.Now, in.Pool = 9*unit.Second, pool(50)
	s, got, _ = run(s, in, 7)
	if d := cmp.Diff([]unit.Micros{480000, 384000, 307200, 245760, 200000, 200000, 200000}, got); d != "" {
		t.Errorf("down (-want +got):\n%s", d)
	}
	if s.Containers[0].Factor != 1 {
		t.Errorf("left behind: %+v", s.Containers[0])
	}
}

func TestLoads(t *testing.T) {
	t.Parallel()
	raised := burst.State{Containers: []burst.ContainerState{{ID: "c", Factor: 2, Capacity: -1}}}
	missing := pool(10)
	missing.BE.OK = false
	full := pool(10)
	full.Requests = 16000
	at := func(average float64, now unit.MilliCPU) burst.Pool {
		p := pool(average)
		p.Now = unit.Got(now)
		return p
	}
	for name, tc := range map[string]struct {
		pool   burst.Pool
		load   burst.Load
		reason string
		quota  unit.Micros
		still  bool
	}{
		"idle":       {pool(40), burst.Idle, "share pool uses 4 of 10 CPUs (40%), below 50%", 450000, false}, // which is 4.5 CPUs, where it cools
		"all of it":  {pool(36), burst.Idle, "below 50%", 480000, false},
		"a little":   {pool(43.9), burst.Idle, "below 50%", 411000, false},
		"no more":    {pool(44), burst.Cooling, "close to 50%", 400000, true}, // a hundredth of the pool is left
		"full now":   {at(20, 4500), burst.Cooling, "share pool uses 2 of 10 CPUs (20%), 4.5 now, close to 50%", 400000, true},
		"idle now":   {at(60, 2000), burst.Cooling, "share pool uses 6 of 10 CPUs (60%), 2 now, close to 50%", 400000, true},
		"both":       {at(60, 5000), burst.Overload, "5 now, overload from 50% on", 320000, false},
		"neither":    {at(20, 3600), burst.Idle, "3.6 now, below 50%", 480000, false},
		"below none": {at(20, -100), burst.Idle, "0 now, below 50%", 480000, false},
		"cooling":    {pool(45), burst.Cooling, "close to 50%", 400000, true},
		"overload":   {pool(50), burst.Overload, "overload from 50% on", 320000, false},
		"missing":    {missing, burst.Unknown, "not measured", 400000, true},
		"no pool":    {full, burst.Unknown, "request every CPU", 400000, true},
		"nothing":    {burst.Pool{}, burst.Unknown, "not measured", 400000, true},
		"below zero": {burst.Pool{CPUs: 1000, Node: unit.Got[unit.MilliCPU](0), Exclusive: unit.Got[unit.MilliCPU](500), BE: unit.Got[unit.MilliCPU](0)}, burst.Idle, "uses 0 of 1 CPU", 445000, false},
		"far above":  {pool(200), burst.Overload, "(200%)", 320000, false},
	} {
		in := burst.Input{Now: 10 * unit.Second, Strategy: auto(-1), Pool: tc.pool, Pods: []burst.Pod{busy(150, 0.4)}}
		_, out := burst.Step(raised, in)
		if out.Load != tc.load || !strings.Contains(out.Reason, tc.reason) || quota(&out, 200000) != tc.quota || out.Changed == tc.still {
			t.Errorf("%s: %s (%s), quota %d, changed %v", name, out.Load, out.Reason, quota(&out, 200000), out.Changed)
		}
	}
	if burst.Load(9).String() != "overload" {
		t.Error("names run out")
	}
}

// TestAFigureCountsOnce: what was measured before a container's last step moves it neither up nor down; the first one has no step before it.
func TestAFigureCountsOnce(t *testing.T) {
	t.Parallel()
	in := burst.Input{Now: 10 * unit.Second, Strategy: auto(-1), Pool: pool(20), Pods: []burst.Pod{busy(150, 0.4)}}
	c := &in.Pods[0].Containers[0]
	var s burst.State
	for _, step := range []struct {
		pool              float64
		poolAt, throttled unit.Micros // how long ago, in tenths of a second
		want              unit.Micros
	}{
		{20, 1, 1, 240000}, {20, 1, 11, 240000}, {20, 21, 1, 240000}, {20, 1, 1, 288000}, {60, 11, 1, 288000}, {60, 1, 11, 230400}, {60, 11, 1, 230400}, {60, 1, 1, 200000},
	} {
		in.Pool = pool(step.pool)
		in.Pool.At, c.At = in.Now-step.poolAt*unit.Second/10, in.Now-step.throttled*unit.Second/10
		var out burst.Output
		if s, out = burst.Step(s, in); quota(&out, 200000) != step.want {
			t.Errorf("at %d s, %+v: quota %d (%s)", in.Now/unit.Second, step, quota(&out, 200000), out.Reason)
		}
		in.Now += unit.Second
	}
}

// TestRoom: what the pool has left is shared by those who ask, each by the same part of its step, and no more than it is given.
func TestRoom(t *testing.T) {
	t.Parallel()
	large := busy(150, 0.4)
	large.UID, large.Base, large.Containers[0].ID, large.Containers[0].Base = "large", 600000, "d", 600000
	in := burst.Input{Now: unit.Second, Strategy: auto(-1), Pool: pool(37), Pods: []burst.Pod{busy(150, 0.4), large}}
	// Steps of 0.4 and 1.2 CPUs, room for 0.8: half of each.
	_, out := burst.Step(burst.State{}, in)
	var got []string
	for _, r := range out.Raises {
		if r.Container != "" {
			got = append(got, fmt.Sprintf("%s %d %s", r.Container, r.Quota, r.Reason))
		}
	}
	why := " throttled in 40% of its periods while the share pool is idle, as far as the pool has room"
	if d := cmp.Diff([]string{"c 220000" + why, "d 660000" + why}, got); d != "" || !out.Changed {
		t.Errorf("changed %v (-want +got):\n%s", out.Changed, d)
	}
	// However little it is, nobody is left out.
	in.Pool = pool(43.8)
	for range 20 {
		in.Pods = append(in.Pods, busy(150, 0.4))
		in.Pods[len(in.Pods)-1].Containers[0].ID = strconv.Itoa(len(in.Pods))
	}
	next, out := burst.Step(burst.State{}, in)
	if len(out.Raises) != 2*len(in.Pods) {
		t.Errorf("%d of %d containers have a part", len(out.Raises)/2, len(in.Pods))
	}
	// What the pool had room for is given, until it is read again; who asks later does not get the same once more.
	in.Now, in.Pool.At = in.Now+unit.Second, in.Now-unit.Second/10
	in.Pods = append(in.Pods, busy(150, 0.4))
	in.Pods[len(in.Pods)-1].Containers[0].ID = "late"
	if _, out = burst.Step(next, in); out.Changed || out.Load != burst.Cooling {
		t.Errorf("the same room twice: %s (%s)", out.Load, out.Reason)
	}
}

func TestWhoBursts(t *testing.T) {
	t.Parallel()
	at := func(change func(*burst.Input)) burst.Input {
		in := burst.Input{Now: unit.Second, Strategy: auto(-1), Pool: pool(20), Pods: []burst.Pod{busy(150, 0.4)}}
		change(&in)
		return in
	}
	for name, tc := range map[string]struct {
		in   burst.Input
		want unit.Micros
	}{
		"LS":                       {at(func(*burst.Input) {}), 240000},
		"no label":                 {at(func(in *burst.Input) { in.Pods[0].QoS = protocol.QoSNone }), 240000},
		"LSR":                      {at(func(in *burst.Input) { in.Pods[0].QoS = protocol.QoSLSR }), 200000},
		"LSE":                      {at(func(in *burst.Input) { in.Pods[0].QoS = protocol.QoSLSE }), 200000},
		"BE":                       {at(func(in *burst.Input) { in.Pods[0].QoS = protocol.QoSBE }), 200000},
		"policy none":              {at(func(in *burst.Input) { in.Strategy.Policy = ptr(strategy.BurstNone) }), 200000},
		"policy cpuBurstOnly":      {at(func(in *burst.Input) { in.Strategy.Policy = ptr(strategy.BurstCPUBurstOnly) }), 200000},
		"policy cfsQuotaBurstOnly": {at(func(in *burst.Input) { in.Strategy.Policy = ptr(strategy.BurstCFSQuotaOnly) }), 240000},
		"annotation none":          {at(func(in *burst.Input) { in.Pods[0].Ask = &protocol.CPUBurst{Policy: ptr(strategy.BurstNone)} }), 200000},
		"annotation percent":       {at(func(in *burst.Input) { in.Pods[0].Ask = &protocol.CPUBurst{CFSQuotaBurstPercent: ptr[int64](110)} }), 220000},
		"annotation percent, capped": {at(func(in *burst.Input) {
			in.PercentMax, in.Pods[0].Ask = 105, &protocol.CPUBurst{CFSQuotaBurstPercent: ptr[int64](10000)}
		}), 210000},
		"annotation without a bucket": {at(func(in *burst.Input) {
			in.Strategy, in.Pods[0].Ask = auto(0), &protocol.CPUBurst{CFSQuotaBurstPeriodSeconds: ptr[int64](-1)}
		}), 240000},
		"a bucket of nothing":     {at(func(in *burst.Input) { in.Strategy = auto(0) }), 200000},
		"100 %":                   {at(func(in *burst.Input) { in.Strategy.CFSQuotaBurstPercent = ptr[int64](100) }), 200000},
		"no quota":                {at(func(in *burst.Input) { in.Pods[0].Containers[0].Base = unit.Unlimited }), 200000},
		"hardly throttled":        {at(func(in *burst.Input) { in.Pods[0].Containers[0].Throttled.V = 0.009 }), 200000},
		"throttling not measured": {at(func(in *burst.Input) { in.Pods[0].Containers[0].Throttled.OK = false }), 200000},
		"use not measured":        {at(func(in *burst.Input) { in.Pods[0].Containers[0].Used.OK = false }), 200000},
		"a normalised base":       {at(func(in *burst.Input) { in.Pods[0].Containers[0].Base = 166667 }), 200000},
	} {
		_, out := burst.Step(burst.State{}, tc.in)
		if got := quota(&out, 200000); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
	// Whatever was raised is back at once where the policy no longer asks.
	s := burst.State{Containers: []burst.ContainerState{{ID: "c", Factor: 2, Capacity: -1}}}
	s, out := burst.Step(s, at(func(in *burst.Input) { in.Strategy.Policy = ptr(strategy.BurstNone) }))
	if len(out.Raises) != 0 || len(s.Containers) != 0 || !out.Changed {
		t.Errorf("%+v", out)
	}
	if _, out = burst.Step(s, at(func(in *burst.Input) { in.Strategy.Policy = ptr(strategy.BurstNone) })); out.Changed {
		t.Error("a second reset")
	}
}

// TestTokens is the documented bucket: period 100 s and 300 % hold 20000 tokens.
func TestTokens(t *testing.T) {
	t.Parallel()
	in := burst.Input{Now: unit.Second, Strategy: auto(100), Pool: pool(20), Pods: []burst.Pod{busy(250, 0)}}
	s, _ := burst.Step(burst.State{}, in)
	if c := s.Containers[0]; c.Capacity != 20000 || c.Tokens != 5000 {
		t.Fatalf("%+v", c)
	}
	for _, step := range []struct {
		percent float64
		after   unit.Micros
		want    float64
	}{
		{250, unit.Second, 4850},
		{250, 990 * unit.Millisecond, 4701.5}, // a second that is a little short counts as such
		{40, unit.Second, 4761.5},
		{60, unit.Second, 4761.5},
		{99, unit.Second, 4761.5},
		{100, unit.Second, 4761.5},
		{0, 150 * unit.Second, 19761.5},
		{0, 100 * unit.Second, 20000},
		{400, 150 * unit.Second, -20000},
		{0, 201 * unit.Second, 5000}, // not looked at for two periods: begins anew
	} {
		in.Now += step.after
		in.Pods = []burst.Pod{busy(step.percent, 0)}
		s, _ = burst.Step(s, in)
		if got := s.Containers[0].Tokens; math.Abs(got-step.want) > 1e-6 {
			t.Errorf("%.0f%% for %v µs: %v tokens, want %v", step.percent, step.after, got, step.want)
		}
	}
	in.Now, in.Pods[0].Containers[0].Used.OK = in.Now+unit.Second, false
	if s, _ = burst.Step(s, in); s.Containers[0].Tokens != 5000 {
		t.Errorf("tokens moved without a figure: %v", s.Containers[0].Tokens)
	}
}

// TestBurstWithBucket: demand of 2.5 CPUs on a limit of one. The container bursts until its tokens are spent, comes back to
// its base, and may again after it has been idle.
func TestBurstWithBucket(t *testing.T) {
	t.Parallel()
	in := burst.Input{Strategy: auto(10), Pool: pool(20), Pods: []burst.Pod{busy(0, 0)}}
	var s burst.State
	high, atBase := 0, 0
	for i := range 120 {
		in.Now += unit.Second
		quotaNow := unit.Micros(100000)
		if len(s.Containers) > 0 {
			quotaNow = s.Containers[0].Factor.Raise(100000)
		}
		demand := unit.MilliCPU(2500)
		if i >= 60 && i < 90 {
			demand = 100
		}
		c := &in.Pods[0].Containers[0]
		c.Base = 100000
		c.Used = unit.Got(min(demand, unit.MilliFromQuota(quotaNow, unit.CFSPeriod)))
		c.Throttled = unit.Got(unit.Fraction(0))
		if demand > c.Used.V {
			c.Throttled.V = 0.5
		}
		s, _ = burst.Step(s, in)
		if s.Containers[0].Factor >= 2 {
			high++
		}
		if i >= 20 && i < 60 && s.Containers[0].Factor == 1 {
			atBase++
		}
	}
	if high < 5 || atBase < 35 || s.Containers[0].Tokens < -2000 {
		t.Errorf("%d s with at least twice the quota, %d of 40 s at the base, tokens %v", high, atBase, s.Containers[0].Tokens)
	}
}

func TestRoomThatIsNotNeededGoesBack(t *testing.T) {
	t.Parallel()
	in := burst.Input{Strategy: auto(-1), Pool: pool(20), Pods: []burst.Pod{busy(150, 0.4)}}
	s, _, _ := run(burst.State{}, in, 4)
	in.Now, in.Pods = 4*unit.Second, []burst.Pod{busy(110, 0)}
	s, got, _ := run(s, in, 600)
	if got[599] != 414720 {
		t.Errorf("a container that uses the room lost it: %d", got[599])
	}
	in.Now, in.Pods = 604*unit.Second, []burst.Pod{busy(80, 0)}
	_, got, out := run(s, in, 130)
	if got[118] != 414720 || got[129] != 200000 || len(out.Raises) != 0 {
		t.Errorf("%d after 119 s, %d after 130 s", got[118], got[129])
	}
}

// A pod's quota is its containers' together, and the kernel counts as throttled only whose runs dry first: where that is the pod's, a container
// that uses what it may is raised all the same.
func TestThrottledWithItsPod(t *testing.T) {
	t.Parallel()
	starved := func(in *burst.Input, used unit.MilliCPU, pod unit.Fraction) {
		in.Pods = []burst.Pod{busy(0, 0)}
		in.Pods[0].Throttled, in.Pods[0].Containers[0].Used = unit.Got(pod), unit.Got(used)
	}
	in := burst.Input{Strategy: auto(-1), Pool: pool(20)}
	var s burst.State
	var out burst.Output
	for i, want := range []unit.Micros{240000, 288000, 345600, 414720, 497664, 597197, 600000} {
		in.Now += unit.Second
		starved(&in, unit.MilliFromQuota(quota(&out, 200000), unit.CFSPeriod)*95/100, 1)
		if s, out = burst.Step(s, in); quota(&out, 200000) != want {
			t.Fatalf("step %d: %d, want %d", i, quota(&out, 200000), want)
		}
	}
	if want := "throttled in 100% of its pod's periods while the share pool is idle"; out.Raises[0].Reason != want {
		t.Errorf("reason %q, want %q", out.Raises[0].Reason, want)
	}
	for what, c := range map[string]struct {
		used   unit.MilliCPU
		part   unit.Fraction
		at     unit.Micros
		raised bool
	}{
		"four fifths of its quota":         {1600, 0.01, 0, true},
		"others of the pod use it":         {1599, 1, 0, false},
		"the pod is hardly throttled":      {2000, 0.009, 0, false},
		"measured after the last step":     {1920, 1, 3 * unit.Second / 2, true},
		"measured before the last step":    {1920, 1, unit.Second, false},
		"it has been raised since, to 2.4": {1919, 1, 3 * unit.Second / 2, false},
	} {
		in := burst.Input{Now: 2 * unit.Second, Strategy: auto(-1), Pool: pool(20)}
		starved(&in, c.used, c.part)
		in.Pods[0].At = c.at
		var s burst.State
		if c.at != 0 {
			s.Containers = []burst.ContainerState{{ID: "c", Factor: 1.2, Capacity: -1, At: unit.Second, StepAt: unit.Second}}
		}
		next, _ := burst.Step(s, in)
		was := unit.Fraction(1)
		if len(s.Containers) > 0 {
			was = s.Containers[0].Factor
		}
		if got := next.Containers[0].Factor > was; got != c.raised {
			t.Errorf("%s: raised %v, want %v", what, got, c.raised)
		}
	}
	// A minute of it is tuned.
	in = burst.Input{Strategy: auto(-1), Tune: true, Pool: pool(20)}
	in.Strategy.Policy = ptr(strategy.BurstNone)
	starved(&in, 2000, 0.3)
	if _, got, _ := run(burst.State{}, in, 70); got[59] != 200000 || got[60] != 240000 {
		t.Errorf("tuned after 60 and 61 s: %d %d", got[59], got[60])
	}
	// A second in which it seems to have used less does not begin the minute anew, one in which its pod was not throttled does.
	for what, c := range map[string]struct {
		used   unit.MilliCPU
		part   unit.Fraction
		raised bool
	}{"less used": {1500, 0.3, true}, "not throttled": {1500, 0, false}} {
		starved(&in, 2000, 0.3)
		s, _, _ := run(burst.State{}, in, 40)
		next := in
		next.Now += 40 * unit.Second
		starved(&next, c.used, c.part)
		s, _, _ = run(s, next, 1)
		starved(&next, 2000, 0.3)
		next.Now += unit.Second
		if _, got, _ := run(s, next, 25); (got[24] > 200000) != c.raised {
			t.Errorf("%s: after 66 s %d", what, got[24])
		}
	}
}

func TestTuning(t *testing.T) {
	t.Parallel()
	in := burst.Input{Strategy: auto(-1), Tune: true, Pool: pool(20), Pods: []burst.Pod{busy(100, 0.3)}}
	in.Strategy.Policy = ptr(strategy.BurstNone)
	s, got, out := run(burst.State{}, in, 70)
	if got[59] != 200000 || got[60] != 240000 || got[69] != 300000 {
		t.Errorf("after 60, 61 and 70 s: %d %d %d", got[59], got[60], got[69])
	}
	if want := "tuned: throttled for 62 s, now in 30% of its periods, on a healthy node"; out.Raises[0].Reason != want {
		t.Errorf("reason %q, want %q", out.Raises[0].Reason, want)
	}
	in.Now, in.Pool = 70*unit.Second, pool(60)
	if _, got, _ = run(s, in, 10); got[9] != 200000 {
		t.Errorf("the node is not healthy any more: %d", got[9])
	}
	in.Tune = false
	if _, out := burst.Step(s, in); len(out.Raises) != 0 {
		t.Errorf("%+v", out.Raises)
	}
	in.Tune = true
	for _, c := range []struct {
		policy string
		raised bool
	}{{strategy.BurstNone, false}, {strategy.BurstCPUBurstOnly, false}, {strategy.BurstAuto, true}} {
		in.Pods[0].Ask = &protocol.CPUBurst{Policy: &c.policy}
		if _, out := burst.Step(s, in); (len(out.Raises) > 0) != c.raised {
			t.Errorf("the pod's own policy is %s: %+v", c.policy, out.Raises)
		}
	}
	in.Pods[0].Ask = nil
	// A minute of hard throttling, not a moment of it.
	in.Tune, in.Pool, in.Now = true, pool(20), 0
	s = burst.State{}
	for i := range 300 {
		in.Now += unit.Second
		in.Pods = []burst.Pod{busy(100, 0.3*unit.Fraction(i/30%2))}
		var out burst.Output
		if s, out = burst.Step(s, in); len(out.Raises) > 0 {
			t.Fatalf("tuned after %d s", i)
		}
	}
}

func TestManyContainers(t *testing.T) {
	t.Parallel()
	in := burst.Input{Now: unit.Second, Strategy: auto(-1), Pool: pool(20)}
	for i := range 3 {
		p := burst.Pod{UID: "uid" + strconv.Itoa(i), QoS: protocol.QoSLS, Base: 300000}
		for j := range 3 {
			p.Containers = append(p.Containers, burst.Container{
				ID: p.UID + "/" + strconv.Itoa(2-j), Base: 100000, Used: unit.Got[unit.MilliCPU](1000), Throttled: unit.Got(unit.Fraction(j)),
			})
		}
		in.Pods = append(in.Pods, p)
	}
	in.Pods[2].Base = unit.Unlimited
	s, out := burst.Step(burst.State{}, in)
	if len(s.Containers) != 9 || len(out.Raises) != 8 {
		t.Fatalf("%d states, %d raises", len(s.Containers), len(out.Raises))
	}
	if r := out.Raises[2]; r.Container != "" || r.Plus != 40000 || r.Quota != 340000 || r.Reason != "room for 2 containers that burst" {
		t.Errorf("%+v", r)
	}
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back burst.State
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(s, back); d != "" {
		t.Errorf("state through JSON:\n%s", d)
	}
	in.Now += 100 * unit.Millisecond
	if _, again := burst.Step(s, in); again.Changed {
		t.Error("a second change in the same tick")
	}
	in.Pods = in.Pods[:1]
	if s, _ = burst.Step(s, in); len(s.Containers) != 3 {
		t.Errorf("%d states of 3 containers: those that ended stay", len(s.Containers))
	}
}

// TestInvariants: whatever is measured, factors stay between 1 and the percentage, move by at most one step, and never
// rise under overload.
func TestInvariants(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(9, 9))
	for range 200 {
		in := burst.Input{Strategy: auto(int64(r.IntN(30) - 1)), Tune: r.IntN(2) == 0}
		s := burst.State{Containers: []burst.ContainerState{{ID: "c", Factor: unit.Fraction(math.NaN())}}}
		for range 200 {
			in.Now += unit.Micros(r.Int64N(int64(2 * unit.Second)))
			if r.IntN(100) == 0 {
				in.Now = 0
			}
			in.Pool, in.Pods = pool(70*r.Float64()), []burst.Pod{busy(400*r.Float64(), unit.Fraction(r.Float64()-0.3))}
			in.Pods[0].Containers[0].Used.OK, in.Pods[0].Containers[0].Throttled.OK = r.IntN(9) > 0, r.IntN(9) > 0
			before := 1.0
			if len(s.Containers) > 0 && s.Containers[0].Factor >= 1 {
				before = float64(s.Containers[0].Factor)
			}
			var out burst.Output
			s, out = burst.Step(s, in)
			f := float64(s.Containers[0].Factor)
			if !(f >= 1 && f <= 3) || f > before*1.2+1e-9 || f < before*0.8-1e-9 || out.Load == burst.Overload && f > before {
				t.Fatalf("from %v to %v at load %s", before, f, out.Load)
			}
			if out.Changed != (f != before) {
				t.Fatalf("changed %v from %v to %v", out.Changed, before, f)
			}
		}
	}
}
