// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/koordlet/internal/agent"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/koordlet/internal/evict"
	"github.com/koord-rt/koord-rt/koordlet/internal/talk"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
	"github.com/koord-rt/koord-rt/policy/burst"
	policy "github.com/koord-rt/koord-rt/policy/evict"
	"github.com/koord-rt/koord-rt/policy/interference"
	"github.com/koord-rt/koord-rt/policy/memqos"
	"github.com/koord-rt/koord-rt/policy/netqos"
	"github.com/koord-rt/koord-rt/policy/policytest"
	"github.com/koord-rt/koord-rt/policy/suppress"
	"github.com/koord-rt/koord-rt/policy/sysctl"
)

// Each step of an eviction is told with pod, reason, figures and what the server said; what comes every few seconds as long
// as nothing changes says so.
func TestEvictionEvent(t *testing.T) {
	t.Parallel()
	refused := errors.New("disruption budget: too many requests")
	e := policy.Eviction{Pod: "u", Namespace: "default", Name: "spark", Feature: policy.BEMemoryEvict, Memory: 2 * gib, CPU: 1500, Reason: "75% used"}
	for outcome, c := range map[evict.Outcome]struct {
		err   error
		word  string
		often bool
	}{
		evict.Accepted: {nil, "accepted", false}, evict.Refused: {refused, "refused", true}, evict.Observed: {nil, "observed", true},
		evict.Failed: {refused, "failed", true}, evict.Gone: {nil, "gone", false}, evict.Overdue: {nil, "overdue", false},
		evict.Stopped: {nil, "stopped", false}, evict.Missing: {refused, "missing", true}, evict.Dropped: {nil, "dropped", true},
	} {
		want := talk.Event{
			What: "eviction", Outcome: c.word, By: "BEMemoryEvict", UID: "u", Name: "default/spark", Often: c.often, Err: c.err,
			Reason: "75% used; it releases 1.5 CPUs and 2 GiB",
		}
		got := evictionEvent(&evict.Result{Eviction: e, Outcome: outcome, Err: c.err})
		if !errors.Is(got.Err, c.err) {
			t.Errorf("%s: %v", c.word, got.Err)
		}
		got.Err, want.Err = nil, nil
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.word, d)
		}
	}
}

// What the end of a pod has released stands beside what was promised, and a failure says for how long the pod is left alone.
func TestEvictionEventTellsTheRelease(t *testing.T) {
	t.Parallel()
	r := evict.Result{
		Eviction: policy.Eviction{Memory: 2 * gib, Reason: "75% used"}, Outcome: evict.Gone, Pause: 20 * time.Second,
		Release: &evict.Release{Before: evict.Usage{Memory: unit.Got[unit.Bytes](3 * gib)}},
	}
	want := "75% used; promised 2 GiB, its use fell by 3 GiB; not asked for again for 20s"
	if got := evictionEvent(&r).Reason; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// People see what each loop decided, and why: tuning too.
func TestLoopsAreTold(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	l := &agent.Look{Wall: at, Owed: []decide.Owed{{Why: "cpu.quota of /kubepods/besteffort: EINVAL"}, {Why: "cpu.idle of /app: EINVAL"}}, Unkept: errors.New("disk full"), Stale: errors.New("no policyName")}
	l.Facts.View = policytest.YAML(t, policytest.View(), `{resourceUsedThresholdWithBE: {enable: true}, cpuBurstStrategy: {policy: auto},
		hostApplications: [{name: nginx, qos: LS}, {name: spark, qos: BE, cgroupPath: {base: Kubepods, relativePath: x}}]}`)
	l.Facts.Members = []engine.Member{{Pod: &workload.Pod{UID: "w", Namespace: "default", Name: "web"}}}
	o := &l.Outcome
	o.Suppress.Reason = "10 CPUs 0-9"
	o.Burst = burst.Output{Reason: "the share pool is idle", Raises: []burst.Raise{
		{Pod: "w", Container: "c", Quota: 240000, Reason: "tuned: throttled for 60 s"}, {Pod: "w", Plus: 40000, Reason: "room for 1 container"},
	}}
	o.Memory = memqos.Output{Highs: []memqos.High{{Container: "c", Pod: "gone", Bytes: gib, Reason: "stalls"}}}
	o.Interference = interference.Output{
		Victims: []interference.Victim{{Pod: "w", Name: "default/web", Signal: interference.CPUPressure, Value: 0.35, Mean: 0.05, Reason: "CPU pressure 35%"}},
		Caps:    []interference.Cap{{Name: "default/spark", Phase: interference.Guilty, Reason: "correlates"}},
	}
	o.Sysctl = sysctl.Output{Reason: "vm.watermark_scale_factor 150: watermarkScaleFactor", Problems: []string{"minFreeKbytesFactor: no such file"}}
	o.IOCost.Problems = []string{"no disk sdz"}
	o.Evict.Decisions = []policy.Decision{{Feature: policy.BEMemoryEvict, Reason: "60% used"}, {Feature: policy.BECPUEvict, Reason: "satisfied", Limited: "no PSI"}}
	cfg := config.DefaultKoordlet()
	cfg.Tune, cfg.Evict.Mode = true, config.ModeObserve
	want := []status.Loop{
		{Name: "cpu-suppress", State: "active", Decision: "10 CPUs 0-9", At: at},
		{Name: "cpu-burst", State: "active", Decision: "the share pool is idle; tuning; default/web to 240000 µs: tuned: throttled for 60 s", At: at},
		{Name: "memory", State: "active", Decision: "tuning; gone to 1 GiB: stalls", At: at},
		{Name: "interference", State: "active", Decision: "default/web: CPU pressure 35%; default/spark is guilty: correlates", At: at},
		{
			Name: "kernel-parameters", State: "degraded", Decision: "vm.watermark_scale_factor 150: watermarkScaleFactor",
			Err: "minFreeKbytesFactor: no such file", At: at,
		},
		{Name: "io-cost", State: "degraded", Err: "no disk sdz", At: at},
		{
			Name: "host-applications", State: "active", At: at,
			Decision: "nginx in /host-latency-sensitive/nginx; 1 not yet: where the kubelet's cgroups are shows in a pod's, and there is none",
		},
		{Name: "network", State: "off", Decision: "no class of networkQOS is enabled", At: at},
		{
			Name: "give-back", State: "degraded", Decision: "what is no longer wanted is tried again every ten seconds",
			Err: "cpu.quota of /kubepods/besteffort: EINVAL; cpu.idle of /app: EINVAL", At: at,
		},
		{
			Name: "kubelet-cpus", State: "degraded", Err: "no policyName", At: at,
			Decision: "who had CPUs alone when the kubelet's CPU manager could be read last keeps them; others are shared",
		},
		{
			Name: "keep-strategy", State: "degraded", Err: "disk full", At: at,
			Decision: "the strategy is in force and handed on; keeping it for the next boot is tried again every ten seconds",
		},
		{Name: "BEMemoryEvict", State: "observe", Decision: "60% used", At: at},
		{Name: "BECPUEvict", State: "observe", Decision: "satisfied", At: at},
	}
	if d := cmp.Diff(want, loops(&cfg, true, "", l)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff([]talk.Scaled{{Container: "c", Quota: 240000}}, scaled(l)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]talk.Victim{{Pod: "w", Signal: "CPU pressure", Now: 0.35, Usual: 0.05}}, disturbed(l)); d != "" {
		t.Error(d)
	}
	cfg.Evict.Mode = config.ModeActive
	for _, s := range loops(&cfg, true, "", l) {
		degraded := []string{"BECPUEvict", "kernel-parameters", "io-cost", "give-back", "kubelet-cpus", "keep-strategy"}
		if (s.State == status.StateDegraded) != slices.Contains(degraded, s.Name) {
			t.Errorf("active: %+v", s)
		}
	}
	quiet := loops(&cfg, true, "", &agent.Look{Wall: at, Facts: decide.Facts{View: policytest.View()}})
	if got := quiet[3].Decision; !strings.HasPrefix(got, "nobody is disturbed; ") {
		t.Errorf("quiet node: %q", got)
	}
}

// The loops that NodeSLO.status has, too, are in the same state for people and metrics: off where nobody asks for them.
func TestLoopsAreInTheStateOfTheStatus(t *testing.T) {
	t.Parallel()
	const asksAll = `{resourceUsedThresholdWithBE: {enable: true}, cpuBurstStrategy: {policy: auto}}`
	for name, c := range map[string]struct {
		yaml      string
		tune      bool
		asked     bool // by annotations
		tickAlone string
		noReclaim string
		change    func(*node.View)
		want      []string // of suppression, burst, memory and interference
	}{
		"nothing asked for": {yaml: "{}", want: []string{
			"off: " + notEnabled, "off: cpuBurstStrategy.policy is none", "off: " + notEnabled + ", nor is memoryQOS of a class",
			"degraded: nobody is disturbed; who is disturbed is told, nobody is throttled: " + notEnabled,
		}},
		"all asked for": {yaml: asksAll, want: []string{
			"active: suppressed", "active: calm", "active: reclaimed", "active: nobody is disturbed",
		}},
		"tuned": {yaml: "{}", tune: true, want: []string{
			"off: " + notEnabled, "active: calm; tuning", "active: reclaimed; tuning",
			"degraded: nobody is disturbed; who is disturbed is told, nobody is throttled: " + notEnabled,
		}},
		"by the tick alone, and without reclaim": {yaml: asksAll, tickAlone: noUnified, noReclaim: "no memory.reclaim", want: []string{
			"degraded: suppressed; " + noUnified, "active: calm", "degraded: reclaimed; memory.high alone: no memory.reclaim", "active: nobody is disturbed",
		}},
		"a pod asks": {yaml: "{}", asked: true, want: []string{
			"off: " + notEnabled, "active: calm; u to 240000 µs: throttled; cpuBurstStrategy.policy is none",
			"active: reclaimed; u to 1 GiB: stalls; " + notEnabled + ", nor is memoryQOS of a class",
			"degraded: nobody is disturbed; who is disturbed is told, nobody is throttled: " + notEnabled,
		}},
		"observed, and switched off": {yaml: asksAll, change: func(v *node.View) {
			v.Modes[protocol.FeatureCPUSet], v.Modes[protocol.FeatureBurst], v.Modes[protocol.FeatureMemory] = node.Observe, node.Off, node.Off
		}, want: []string{
			"observe: suppressed", "off: feature cpu-burst is switched off in the configuration",
			"off: feature memory-qos does not write: reclaim has nothing to observe", "active: nobody is disturbed",
		}},
		"unsupported": {yaml: asksAll, change: func(v *node.View) {
			v.Kernel.Knobs[plan.CPUSetCPUs].OK, v.Kernel.Knobs[plan.CPUSetCPUs].Why = false, "no cpuset"
		}, want: []string{"unsupported: no cpuset", "active: calm", "active: reclaimed", "active: nobody is disturbed"}},
	} {
		l := &agent.Look{Facts: decide.Facts{View: policytest.YAML(t, policytest.View(), c.yaml), NoReclaim: c.noReclaim}}
		if c.change != nil {
			c.change(l.Facts.View)
		}
		o := &l.Outcome
		o.Suppress.Reason, o.Burst.Reason, o.Memory.Reason = "suppressed", "calm", "reclaimed"
		if c.asked {
			o.Burst.Raises = []burst.Raise{{Pod: "u", Container: "c", Quota: 240000, Reason: "throttled"}}
			o.Memory.Highs = []memqos.High{{Pod: "u", Container: "c", Bytes: gib, Reason: "stalls"}}
		}
		cfg := config.DefaultKoordlet()
		cfg.Tune = c.tune
		var got []string
		for _, s := range loops(&cfg, true, c.tickAlone, l)[:4] {
			text := s.State + ": " + s.Decision
			if s.Err != "" {
				text += ": " + s.Err
			}
			got = append(got, text)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// Without an API server evictions are recorded only, and their loops say so; where containers may be stopped past it, that is all that is done.
func TestEvictionLoopsWithoutAPIServer(t *testing.T) {
	t.Parallel()
	l := &agent.Look{Facts: decide.Facts{View: policytest.View()}}
	l.Outcome.Evict.Decisions = []policy.Decision{{Feature: policy.BEMemoryEvict, Reason: "90% used", Limited: "no PSI"}}
	cfg := config.DefaultKoordlet()
	for name, c := range map[string]struct {
		api      bool
		stops    string
		mode     config.Mode
		state    string
		decision string
	}{
		"an API server":               {true, config.StopEvicted, config.ModeActive, status.StateDegraded, "90% used"},
		"none":                        {false, config.StopEvicted, config.ModeActive, status.StateObserve, "no API server, nobody is evicted: 90% used"},
		"none, and nothing stopped":   {false, config.StopNever, config.ModeActive, status.StateObserve, "no API server, nobody is evicted: 90% used"},
		"none, stopped in danger":     {false, config.StopDanger, config.ModeActive, status.StateDegraded, "no API server, only in danger containers are stopped: 90% used"},
		"none, and observed all told": {false, config.StopDanger, config.ModeObserve, status.StateObserve, "90% used"},
	} {
		cfg.Evict.StopContainers, cfg.Evict.Mode = c.stops, c.mode
		all := loops(&cfg, c.api, "", l)
		if got := all[len(all)-1]; got.Name != "BEMemoryEvict" || got.State != c.state || got.Decision != c.decision {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Loops that nobody asks for anything are told too, with why they do nothing; those that hold something say what, also when that has long been in force.
func TestLoopsThatWaitToBeAsked(t *testing.T) {
	t.Parallel()
	const asksAll = `{systemStrategy: {watermarkScaleFactor: 150}, hostApplications: [{name: nginx}],
		resourceQOSStrategy: {cgroupRoot: {blkioQOS: {enable: true, blocks: [{name: sda, type: device}]}}, lsClass: {networkQOS: {enable: true}}}}`
	held := func(o *decide.Outcome) {
		o.Sysctl.Reason, o.IOCost.Reason, o.Network = "vm.x 1: why", "io.cost.qos of 8:0: why", netqos.Output{Asked: true, Reason: "eth0"}
	}
	for name, c := range map[string]struct {
		yaml   string
		change func(*node.View)
		out    func(*decide.Outcome)
		want   []string
	}{
		"nothing asked for": {yaml: "{}", want: []string{
			"off: systemStrategy names none", "off: no cgroupRoot.blkioQOS that is enabled names a disk", "off: hostApplications has none",
			"off: no class of networkQOS is enabled",
		}},
		"held": {yaml: asksAll, out: held, want: []string{
			"active: vm.x 1: why", "active: io.cost.qos of 8:0: why", "active: nginx in /host-latency-sensitive/nginx", "active: eth0",
		}},
		"features that do not write": {yaml: asksAll, change: func(v *node.View) {
			v.Modes[protocol.FeatureMemory], v.Modes[protocol.FeatureBlkIO], v.Modes[protocol.FeatureNetwork] = node.Off, node.Observe, node.Off
		}, want: []string{
			"off: the feature memory-qos is not active on this node", "off: the feature blkio is not active on this node",
			"active: nginx in /host-latency-sensitive/nginx", "off: the feature network-qos is not active on this node",
		}},
		"ceded": {yaml: asksAll, change: func(v *node.View) {
			v.Ceded = plan.KnobSet(plan.VMWatermarkScale, plan.IOCostQoS, plan.IOCostModel, plan.NetShape)
		}, want: []string{
			"off: what systemStrategy asks for is ceded to another program", "off: what cgroupRoot.blkioQOS asks for is ceded to another program",
			"active: nginx in /host-latency-sensitive/nginx", "off: net.shape is ceded to another plugin",
		}},
	} {
		l := &agent.Look{Facts: decide.Facts{View: policytest.YAML(t, policytest.View(), c.yaml)}}
		if c.change != nil {
			c.change(l.Facts.View)
		}
		if c.out != nil {
			c.out(&l.Outcome)
		}
		cfg := config.DefaultKoordlet()
		var got []string
		for _, want := range []string{"kernel-parameters", "io-cost", "host-applications", "network"} {
			for _, s := range loops(&cfg, true, "", l) {
				if s.Name == want {
					got = append(got, s.State+": "+s.Decision)
				}
			}
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// Host applications of the strategy have their series.
func TestHostAppsAreTold(t *testing.T) {
	t.Parallel()
	got := hostApps([]strategy.HostApplication{{Name: "nginx", QoS: "LS", Priority: "koord-prod"}, {Name: "x", QoS: "unheard-of"}})
	want := []talk.HostApp{{Name: "nginx", QoS: protocol.QoSLS, Priority: protocol.PriorityProd}, {Name: "x"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A quota in place of the set that the strategy asks for is told with the loop, too, and so in the metrics.
func TestQuotaInPlaceOfASet(t *testing.T) {
	t.Parallel()
	cfg := config.DefaultKoordlet()
	l := &agent.Look{Facts: decide.Facts{View: policytest.YAML(t, policytest.View(), "{resourceUsedThresholdWithBE: {enable: true}}")}}
	l.Outcome.Suppress.Mode = suppress.Quota
	for static, want := range map[bool]string{false: status.StateActive, true: status.StateDegraded} {
		l.Facts.View.Kernel.KubeletStaticCPU = static
		if got := loops(&cfg, true, "", l)[0]; got.State != want || (got.Err != "") != static {
			t.Errorf("static %v: %+v", static, got)
		}
	}
}
