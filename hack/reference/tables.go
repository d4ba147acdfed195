// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/kernel/cgroup"
)

// knobs is one row for each knob.
func knobs() (string, error) {
	var rows [][]string
	for _, f := range cgroup.Table() {
		who, ok := owners[f.Knob]
		if !ok {
			return "", fmt.Errorf("knob %s has no line in owners", f.Knob)
		}
		rows = append(rows, []string{
			code(f.Knob.String()), file(f.V1Controller, f.V1, f.SinceV1), file("", f.V2, f.SinceV2), elsewhere(f.Elsewhere), f.Unit, f.Range, names(who), f.Failure,
		})
	}
	return `A knob is one thing that koord-rt can set, under one name for both cgroup versions. The names stand in ledgers, in the annotation
koord-rt.dev/applied, in metrics, in ` + "`koordctl`" + ` and under cede in the configuration.

v1 and v2 name the file and, in parentheses, the first mainline kernel that has it or the kernel family that alone has it. -1 means
unlimited. Each knob of a target has one owner at a time; where several features can own it, the last word has the owner that
` + "`koordctl explain`" + ` names.

` + table([]string{"knob", "v1 file (since)", "v2 file (since)", "elsewhere", "unit", "range", "owners", "when it cannot be set"}, rows), nil
}

func file(controller, name, since string) string {
	switch {
	case name == "":
		return "–"
	case controller != "":
		name = controller + "/" + name
	}
	if since == "" {
		return code(name)
	}
	return code(name) + " (" + since + ")"
}

func elsewhere(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

func names(fs []protocol.Feature) string {
	if len(fs) == 0 {
		return "nobody: the runtime's value stands"
	}
	var out []string
	for _, f := range fs {
		out = append(out, f.String())
	}
	return strings.Join(out, ", ")
}

// features is one row for each feature, with where its knobs work.
func features() (string, error) {
	files := map[string]cgroup.File{}
	for _, f := range cgroup.Table() {
		files[f.Knob.String()] = f
	}
	var rows [][]string
	for _, f := range protocol.Features() {
		purpose, ok := purposes[f]
		if !ok {
			return "", fmt.Errorf("feature %s has no purpose", f)
		}
		var v1, v2, vendor []string
		for _, k := range knobsOf(f) {
			line := files[k.String()]
			name := code(k.String())
			one, two := mainline(line.V1, line.SinceV1), mainline(line.V2, line.SinceV2)
			if line.Elsewhere != "" {
				one, two = true, true
			}
			if one {
				v1 = append(v1, name)
			}
			if two {
				v2 = append(v2, name)
			}
			if !two {
				vendor = append(vendor, name)
			} else if !one && line.V1 != "" {
				vendor = append(vendor, name+" on v1")
			}
		}
		rows = append(rows, []string{code(f.String()), purpose, list(v1), list(v2), list(vendor)})
	}
	return `The names stand in the configuration (features, failClosed), in the annotations koord-rt.dev/opt-out and koord-rt.dev/required, and in
metrics. What works on a node, and why not, says ` + "`koordctl features`" + `.

` + table([]string{"feature", "what it is for", "knobs on mainline with cgroup v1", "knobs on mainline with cgroup v2", "knobs on vendor kernels only"}, rows), nil
}

// mainline reports whether a mainline kernel has the file: its origin is a version and not a family's name.
func mainline(name, since string) bool {
	return name != "" && (since == "" || since[0] >= '0' && since[0] <= '9')
}

func list(s []string) string {
	if len(s) == 0 {
		return "–"
	}
	return strings.Join(s, ", ")
}

// metricsPage is one row for each metric of each program.
func metricsPage() string {
	var buckets []string
	for _, b := range metrics.Buckets() {
		buckets = append(buckets, strconv.FormatFloat(b, 'g', -1, 64))
	}
	return "Each program on a node serves its metrics at metrics.address of its configuration, by default a unix socket. The names of koord-nri and\n" +
		"koord-runtime-proxy differ in one word, and so do those of koordlet's engine, which stand last; those of koordlet that begin with\n" +
		"koordlet_ are upstream's, with the same labels. koord-manager's stand where the manual says what they are of: its\n" +
		"[controllers](../user/manager.md#metrics), [lending](../user/lending.md#what-can-be-seen), [recommendations](../user/recommend.md#what-it-costs)\n" +
		"and [webhooks](../user/admission.md#when-something-is-wrong).\n\n" +
		metricsOf("koord-nri", metrics.Catalogue("nri"), config.Default().Metrics) +
		metricsOf("koord-runtime-proxy", metrics.Catalogue("cri"), config.DefaultProxy().Metrics) +
		"Buckets of the histograms of both, and of koordlet's engine, in seconds: " + strings.Join(buckets, ", ") + ".\n\n" +
		metricsOf("koordlet", slices.Concat(metrics.AgentCatalogue(), metrics.Catalogue("koordlet")), config.DefaultKoordlet().Metrics)
}

func metricsOf(program string, all []metrics.Metric, at config.Metrics) string {
	var rows [][]string
	for _, m := range all {
		rows = append(rows, []string{code(m.Name), string(m.Kind), list(m.Labels), m.Help, elsewhere(m.Values)})
	}
	return "## " + program + "\n\n    curl --unix-socket " + strings.TrimPrefix(at.Address, "unix:") + " http://localhost/metrics\n\n" +
		table([]string{"metric", "kind", "labels", "help", "values of labels"}, rows) + "\n"
}
