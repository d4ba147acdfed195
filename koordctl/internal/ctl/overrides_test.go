// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// overriddenNode is koordlet's word for a NodeSLO of which others have written some fields.
func overriddenNode() status.Status {
	at := time.Date(2026, 5, 1, 11, 58, 3, 0, time.UTC)
	s := healthy()
	s.Program, s.ProgramVersion, s.NRIVersion, s.StrategySource = "koordlet", "koordlet v0.1.0 (abc)", "", sourceHandoff
	by := func(names ...string) (out []status.Owner) {
		for _, n := range names {
			out = append(out, status.Owner{Manager: n, Time: at})
		}
		return out
	}
	s.Agent = &status.Agent{
		Node: status.Node{Name: "node-7"}, Pods: []status.Pod{{Namespace: "default", Name: "web", UID: "uid-1", Class: "LS"}},
		NodeSLO: &status.NodeSLO{Generation: 12, LeftOut: 2, Overrides: []status.Override{
			{Field: "cpuBurstStrategy.cpuBurstPercent", Value: "300", By: by("kubectl-edit")},
			{Field: "resourceQOSStrategy.beClass.memoryQOS.throttlingPercent", Value: "70", By: by("argo")},
			{Field: "resourceQOSStrategy.lsClass", By: []status.Owner{{Manager: "argo\x1b[31mcd"}, {Manager: "helm", Time: at}}},
			{Field: "resourceThresholdStrategy.thresholds.cpu-suppress-percent", Value: "60", By: by("kubectl-patch")},
		}},
	}
	return s
}

func TestOverridesAreTold(t *testing.T) {
	t.Parallel()
	h := colocated(t, "6.12")
	h.work(t, plan.Plan{set(app, plan.CPUBurst, plan.Int(30000), protocol.FeatureBurst, "300% of limit 1000m")},
		journal.Record{Target: app, Knob: plan.CPUShares.String(), Want: "2", Owner: "hook:koordlet", Via: journal.ViaRuntime})
	s := overriddenNode()
	h.aliveAs(t, writerKoordlet, s)
	out, err := h.run(t, "features")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "features-overrides", withPID(out))
	e := &env{hostRoot: h.dir, runDir: "/run/koord-rt"}
	if e.agentSLO() == nil {
		t.Fatal("koordlet's word is not found")
	}
	out, err = h.run(t, "explain", "default/web/app")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out, "\x1b") {
		t.Error("a manager's name reaches the terminal unchanged")
	}
	golden(t, "explain-overrides", out)

	out, err = h.run(t, "explain", "default/web", "-o", "json")
	var got struct {
		Overrides []overridden `json:"overrides"`
	}
	if err != nil || json.Unmarshal([]byte(out), &got) != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var told []string
	for _, o := range got.Overrides {
		told = append(told, o.Feature+" "+o.Field+" "+o.Value+" "+o.By[0].Manager)
	}
	want := []string{"memory-qos resourceQOSStrategy.lsClass  argo\x1b[31mcd", "cpu-burst cpuBurstStrategy.cpuBurstPercent 300 kubectl-edit"}
	if d := cmp.Diff(want, told); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Of a node whose strategy is not the NodeSLO's nothing is said; of one whose owners are not known, and of the cluster's alone, that.
func TestOverridesThatAreNone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit func(*status.Status)
		want string
	}{
		"the cluster's":      {func(s *status.Status) { s.Agent.NodeSLO = &status.NodeSLO{} }, "strategy: the cluster's; nobody else has written"},
		"not known":          {func(s *status.Status) { s.Agent.NodeSLO = nil }, "is not known until koordlet has read it"},
		"of an earlier boot": {func(s *status.Status) { s.StrategySource, s.Agent.NodeSLO = "handoff of an earlier boot", nil }, "is not known until koordlet has read it"},
		"from a file":        {func(s *status.Status) { s.StrategySource = "/etc/koord-rt/strategy.yaml" }, ""},
		"no agent":           {func(s *status.Status) { s.Agent = nil }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := colocated(t, "6.12")
			s := overriddenNode()
			c.edit(&s)
			h.aliveAs(t, writerKoordlet, s)
			out, err := h.run(t, "features")
			if err != nil || !strings.Contains(out, c.want) || c.want == "" && strings.Contains(out, "strategy:") || strings.Contains(out, "kubectl-edit") {
				t.Errorf("%v\n%s", err, out)
			}
			if out, err := h.run(t, "explain", "default/web"); err != nil || strings.Contains(out, "set by") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// A koordlet that has ended is quoted with the time.
func TestOverridesOfAnEndedKoordlet(t *testing.T) {
	t.Parallel()
	h := colocated(t, "6.12")
	s := overriddenNode()
	s.Written = time.Date(2026, 5, 1, 12, 58, 3, 0, time.UTC)
	if err := status.Write(h.runDir(), writerKoordlet, s); err != nil {
		t.Fatal(err)
	}
	out, err := h.run(t, "explain", "default/web")
	if err != nil || !strings.Contains(out, "not by the cluster's strategy (as koordlet knew it at 2026-05-01T12:58:03Z)") {
		t.Errorf("%v\n%s", err, out)
	}
}

// The fields that features are said to read are fields.
func TestFieldsOfFeatures(t *testing.T) {
	t.Parallel()
	for _, f := range protocol.Features() {
		for _, pattern := range fieldsOf(f, "") {
			for _, class := range []string{"LSR", "LS", "BE", "SYSTEM"} {
				path := strings.NewReplacer(anyClass, classGroup(class), ownClass, classGroup(class)).Replace(pattern)
				if !isField(reflect.TypeFor[strategy.Wire](), strings.Split(path, ".")) {
					t.Errorf("%s: %s is no field", f, path)
				}
				if !touches(path+".enable", pattern, class) || !touches(path, pattern, "none") || touches("extensions.x", pattern, class) {
					t.Errorf("%s: %s of %s", f, path, class)
				}
			}
		}
	}
	if touches("resourceQOSStrategy.beClass.memoryQOS", "resourceQOSStrategy.CLASS.memoryQOS", "LS") {
		t.Error("another class' field")
	}
	if len(fieldsOf(protocol.FeatureCPUSet, "LS")) != 0 {
		t.Error("suppression is about BE")
	}
}

func isField(t reflect.Type, path []string) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if len(path) == 0 {
		return true
	}
	if t.Kind() != reflect.Struct {
		return false
	}
	for f := range t.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name == path[0] {
			return isField(f.Type, path[1:])
		}
	}
	return false
}

// TestDiffTellsWhoseFieldsTheyAre: diff says it of the settings that it shows and of no others, for people below the table, for programs
// with each setting.
func TestDiffTellsWhoseFieldsTheyAre(t *testing.T) {
	t.Parallel()
	h := colocated(t, "6.12")
	h.work(t, plan.Plan{set(app, plan.CPUBurst, plan.Int(30000), protocol.FeatureBurst, "300% of limit 1000m")})
	h.aliveAs(t, writerKoordlet, overriddenNode())
	const memory, burst = "memory-qos: resourceQOSStrategy.lsClass: set by argo [31mcd, and helm, last at 2026-05-01T11:58:03Z, not by the cluster's strategy\n",
		"cpu-burst: cpuBurstStrategy.cpuBurstPercent 300: set by kubectl-edit, last at 2026-05-01T11:58:03Z, not by the cluster's strategy\n"
	if out, err := h.run(t, "diff"); err != nil || strings.Contains(out, "set by") {
		t.Errorf("without a difference: %v\n%s", err, out)
	}
	quota(t, h, "max")
	h.tree.Set(t, podDir, "memory.high", "max")
	if out, err := h.run(t, "diff"); err != nil || !strings.Contains(out, memory+"2 of 8 settings") || strings.Contains(out, "kubectl-edit") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := h.run(t, "diff", "--all"); err != nil || strings.Count(out, memory) != 1 || strings.Count(out, burst) != 1 || strings.Contains(out, "beClass") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err := h.run(t, "diff", "-o", "json")
	var got []owned
	if err != nil || json.Unmarshal([]byte(out), &got) != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	told := map[string][]status.Override{}
	for i := range got {
		told[got[i].Knob] = got[i].Overrides
	}
	want := map[string][]status.Override{"cpu.quota": nil, "memory.high": {overriddenNode().Agent.NodeSLO.Overrides[2]}}
	if d := cmp.Diff(want, told); d != "" {
		t.Errorf("(-want +got):\n%s\n%s", d, out)
	}
}

// Settings of the node, of QoS classes and of groups of resctrl come from other fields than those of pods.
func TestFieldsOfSettings(t *testing.T) {
	t.Parallel()
	var o overriding
	for _, f := range []string{
		"resourceQOSStrategy.beClass.memoryQOS.enable", "resourceQOSStrategy.beClass.resctrlQOS.catRangeEndPercent",
		"resourceQOSStrategy.lsClass.resctrlQOS.catRangeEndPercent", "resourceUsedThresholdWithBE.cpuSuppressThresholdPercent",
		"systemStrategy.minFreeKbytesFactor", "systemStrategy.watermarkScaleFactor",
	} {
		o.fields = append(o.fields, status.Override{Field: f})
	}
	for name, c := range map[string]struct {
		level  plan.Level
		cgroup string
		knob   plan.Knob
		owner  protocol.Feature
		want   []int
	}{
		"watermark":           {plan.LevelNode, "", plan.VMWatermarkScale, protocol.FeatureMemory, []int{5}},
		"free memory":         {plan.LevelNode, "", plan.VMMinFree, protocol.FeatureMemory, []int{4}},
		"suppression":         {plan.LevelQoS, "/kubepods/besteffort", plan.CPUQuota, protocol.FeatureBatch, []int{3}},
		"a sum of the class'": {plan.LevelQoS, "/kubepods/besteffort", plan.MemoryMin, protocol.FeatureMemory, []int{0}},
		"a class' cache":      {plan.LevelGroup, "LS", plan.RDTSchemata, protocol.FeatureLLC, []int{2}},
		"a pod's batch":       {plan.LevelPod, "/kubepods/p", plan.CPUQuota, protocol.FeatureBatch, nil},
	} {
		l := line{Target: plan.Target{Level: c.level, Cgroup: c.cgroup}, Knob: c.knob.String(), Owner: c.owner.String()}
		var want []status.Override
		for _, i := range c.want {
			want = append(want, o.fields[i])
		}
		if d := cmp.Diff(want, o.of(&l)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	for _, k := range []plan.Knob{plan.VMWatermarkScale, plan.VMMinFree} {
		for _, field := range fieldsOfSetting(&line{Knob: k.String()}, protocol.FeatureMemory, "") {
			if !isField(reflect.TypeFor[strategy.Wire](), strings.Split(field, ".")) {
				t.Errorf("%s: %s is no field", k, field)
			}
		}
	}
}
