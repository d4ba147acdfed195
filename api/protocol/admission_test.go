// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package protocol_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
)

func FuzzPodLimits(f *testing.F) {
	f.Add("*,oom-score-adj>=0")
	f.Add("cpuBurst, memoryQOS ,oom-score-adj>=-500,none,resctrl")
	fuzz(f, "", protocol.ParsePodLimits, protocol.FormatPodLimits)
}

func FuzzSubPriority(f *testing.F) {
	f.Add("5300")
	f.Add("-2147483649")
	fuzz(f, "", protocol.ParseSubPriority, func(v int32) string { return strconv.Itoa(int(v)) })
}

func TestPriorityClassOf(t *testing.T) {
	t.Parallel()
	for value, want := range map[int32]string{
		2999: "", 3000: "koord-free", 3999: "koord-free", 4000: "", 5000: "koord-batch", 5999: "koord-batch", 6000: "",
		6999: "", 7000: "koord-mid", 7999: "koord-mid", 8000: "", 9000: "koord-prod", 9999: "koord-prod", 10000: "", 0: "", -1: "",
		100000: "",
	} {
		if got := protocol.PriorityClassOf(value).String(); got != want {
			t.Errorf("%d: class %q, want %q", value, got, want)
		}
	}
}

func TestPodPriorityClass(t *testing.T) {
	t.Parallel()
	batch := int32(5500)
	for name, c := range map[string]struct {
		label    string
		priority *int32
		want     string
	}{
		"nothing":             {"-", nil, ""},
		"priority":            {"-", &batch, "koord-batch"},
		"label wins":          {"koord-mid", &batch, "koord-mid"},
		"unknown word":        {"gold", &batch, ""},
		"label, no priority":  {"koord-free", nil, "koord-free"},
		"empty label is none": {"", &batch, ""},
	} {
		labels := map[string]string{}
		if c.label != "-" {
			labels[protocol.LabelPriorityClass] = c.label
		}
		if got := protocol.PodPriorityClass(labels, c.priority).String(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestSchedulerOwned has the keys as upstream's scheduler writes them (koordinator-cluster.md 2), not by our constants: a wrong letter in one of those would
// leave its key to everybody.
func TestSchedulerOwned(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]bool{
		"scheduling.koordinator.sh/resource-status":                 true,
		"scheduling.koordinator.sh/device-allocated":                true,
		"scheduling.koordinator.sh/reservation-allocated":           true,
		"scheduling.koordinator.sh/reserve-pod":                     true,
		"scheduling.koordinator.sh/bind-timestamp":                  true,
		"scheduling.koordinator.sh/gpu-minors":                      true,
		"scheduling.koordinator.sh/bind-gang-group-id":              true,
		"scheduling.koordinator.sh/bind-gang-member-count":          true,
		"internal.scheduling.koordinator.sh/bind-gang-group-id":     true,
		"internal.scheduling.koordinator.sh/bind-gang-member-count": true,
		"internal.scheduling.koordinator.sh/anything-of-tomorrow":   true,
		"internal.scheduling.koordinator.sh/scheduling-hint":        false,
		"scheduling.koordinator.sh/resource-spec":                   false,
		"node.koordinator.sh/extended-resource-spec":                false,
		"scheduling.koordinator.sh/resource-status-of-somebody":     false,
		"xinternal.scheduling.koordinator.sh/bind-gang-group-id":    false,
		"example.com/internal.scheduling.koordinator.sh/something-": false,
	} {
		if got := protocol.SchedulerOwned(key); got != want {
			t.Errorf("%s: %v, want %v", key, got, want)
		}
	}
}

func TestKoordinators(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]bool{
		"koordinator.sh/qosClass": true, "quota.scheduling.koordinator.sh/name": true, "notkoordinator.sh/x": false,
		"koordinator.sh": false, "koordinator.sh.example.com/x": false, "koord-rt.dev/opt-out": false, "env": false,
	} {
		if got := protocol.Koordinators(key); got != want {
			t.Errorf("%s: %v, want %v", key, got, want)
		}
	}
}

func TestPodLimits(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                              "none",
		"none":                          "none",
		"*":                             "blkioQOS,cpuBurst,cpuQOS,memoryQOS,networkQOS,oom-score-adj>=-1000,resctrl",
		"*,oom-score-adj>=0":            "blkioQOS,cpuBurst,cpuQOS,memoryQOS,networkQOS,oom-score-adj>=0,resctrl",
		"memoryQOS, cpuBurst":           "cpuBurst,memoryQOS",
		"oom-score-adj":                 "oom-score-adj>=-1000",
		"oom-score-adj>=5,cpuBurst":     "cpuBurst,oom-score-adj>=5",
		"oom-score-adj>=5,none,resctrl": "resctrl",
	} {
		got, err := protocol.ParsePodLimits(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if out := protocol.FormatPodLimits(got); out != want {
			t.Errorf("%q: %s, want %s", text, out, want)
		}
	}
	for _, text := range []string{"cpuburst", "resctrl>=1", "oom-score-adj>=", "oom-score-adj>=-1001", ",", "cpuBurst,,"} {
		if _, err := protocol.ParsePodLimits(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
	if got := protocol.FormatPodLimits(protocol.DefaultPodLimits()); got != "blkioQOS,cpuBurst,cpuQOS,memoryQOS,networkQOS,oom-score-adj>=0,resctrl" {
		t.Errorf("default: %s", got)
	}
}

func TestPodLimitsCheck(t *testing.T) {
	t.Parallel()
	low := protocol.PodLimits{Allowed: []string{"oom-score-adj", "cpuBurst"}, OOMScoreAdjMin: -100}
	for name, c := range map[string]struct {
		limits     protocol.PodLimits
		key, value string
		want       string // a part of the reason, "" for allowed
	}{
		"not limited at all":     {protocol.PodLimits{}, protocol.AnnotationResourceStatus, "{}", ""},
		"allowed":                {low, protocol.AnnotationCPUBurst, "{}", ""},
		"not allowed":            {low, protocol.AnnotationResctrl, "{}", "resctrl is not allowed"},
		"nothing allowed":        {protocol.PodLimits{}, protocol.AnnotationCPUBurst, "{}", "cpuBurst is not allowed"},
		"bound kept":             {low, protocol.AnnotationOOMScoreAdj, "-100", ""},
		"below the bound":        {low, protocol.AnnotationOOMScoreAdj, "-101", "at least -100"},
		"one container below":    {low, protocol.AnnotationOOMScoreAdjSpec, `{"a":5,"b":-999}`, "at least -100"},
		"containers kept":        {low, protocol.AnnotationOOMScoreAdjSpec, `{"a":5,"b":-100}`, ""},
		"unreadable, so ignored": {low, protocol.AnnotationOOMScoreAdj, "immune", ""},
		"default is no immunity": {protocol.DefaultPodLimits(), protocol.AnnotationOOMScoreAdj, "-1", "at least 0"},
		"default is otherwise":   {protocol.DefaultPodLimits(), protocol.AnnotationResctrl, "{}", ""},
	} {
		got := c.limits.Check(c.key, c.value)
		if c.want == "" && got != "" || c.want != "" && !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
