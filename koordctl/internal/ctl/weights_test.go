// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// A weight is read by the formula that the plugin has found: on a node whose runc is older than 1.3.2 the weight that
// linear shares give is no drift, although current runtimes would have written another.
func TestDiffReadsWeightsByTheNodesFormula(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.12")
	h.work(t, plan.Plan{
		set(app, plan.CPUShares, plan.Int(1024), protocol.FeatureBatch, "batch-cpu 1"),
		set(pod, plan.CPUShares, plan.Int(1024), protocol.FeatureBatch, "batch-cpu 1"),
	})
	for _, c := range []struct {
		formula, pods string
		container     string // cpu.weight
		clean         bool
	}{
		{"", "", "39", false}, // nothing told: those of current runtimes
		{"linear", "linear", "39", true},
		{"linear", "linear", "100", false},
		{"quadratic", "linear", "100", true},
		{"quadratic", "quadratic", "100", false}, // the pod's is the kubelet's
	} {
		h.tree.Set(t, appDir, "cpu.weight", c.container)
		h.tree.Set(t, podDir, "cpu.weight", "39")
		s := status.Status{Program: "koord-nri", WeightFormula: c.formula, PodWeightFormula: c.pods}
		if err := status.Write(h.runDir(), "nri", s); err != nil {
			t.Fatal(err)
		}
		out, err := h.run(t, "diff", "--exit-code")
		if (err == nil) != c.clean {
			t.Errorf("%s, pods %s, cpu.weight %s: %v\n%s", c.formula, c.pods, c.container, err, out)
		}
	}
}

// Where several daemons have told a formula, the first of the table is believed.
func TestWeightsOfSeveralDaemons(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.12")
	e := &env{hostRoot: h.dir, runDir: "/run/koord-rt"}
	for _, c := range []struct {
		writer, formula string
		want            unit.WeightFormula
	}{
		{writerKoordlet, "linear", unit.Linear},
		{writerProxy, "quadratic", unit.Quadratic},
		{writerNRI, "linear", unit.Linear},
		{writerProxy, "quadratic", unit.Linear},
		{writerNRI, "", unit.Quadratic},
	} {
		h.aliveAs(t, c.writer, status.Status{WeightFormula: c.formula})
		if got := e.weights().Weight; got != c.want {
			t.Errorf("after %s has told %q: %v, want %v", c.writer, c.formula, got, c.want)
		}
	}
}
