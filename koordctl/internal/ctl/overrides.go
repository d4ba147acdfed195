// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/model/plan"
)

// sourceHandoff begins a daemon's word for a strategy that is the NodeSLO's, handed on by koordlet in this boot or an earlier one.
const sourceHandoff = "handoff"

// Parts of a strategy's field that stand for a class: the pod's own, or any.
const (
	ownClass = "CLASS"
	anyClass = "*"
)

// fieldsOf are the parts of the strategy from which a feature takes a pod's values. A feature that is not here takes them from elsewhere:
// from the pod, or from annotations of the node.
func fieldsOf(f protocol.Feature, class string) []string {
	switch f {
	case protocol.FeatureCPUSet:
		if class == "" || class == protocol.QoSBE.String() { // suppression
			return []string{"resourceUsedThresholdWithBE", "resourceThresholdStrategy"}
		}
	case protocol.FeatureIdentity, protocol.FeatureCoreSched: // a pod's depend on its neighbours', too
		return []string{"resourceQOSStrategy.*.cpuQOS", "resourceQOSStrategy.policies.cpuPolicy"}
	case protocol.FeatureBurst:
		return []string{"cpuBurstStrategy"}
	case protocol.FeatureMemory:
		return []string{"resourceQOSStrategy.CLASS.memoryQOS", "resourceQOSStrategy.policies.memoryHighPolicy"}
	case protocol.FeatureLLC:
		return []string{"resourceQOSStrategy.CLASS.resctrlQOS"}
	case protocol.FeatureBlkIO:
		return []string{"resourceQOSStrategy.CLASS.blkioQOS", "resourceQOSStrategy.CLASS.blkIOQOS"}
	case protocol.FeatureNetwork:
		return []string{"resourceQOSStrategy.CLASS.networkQOS", "resourceQOSStrategy.policies.netQOSPolicy", "systemStrategy.totalNetworkBandwidth"}
	case protocol.FeatureBatch, protocol.FeatureNormalization, protocol.FeatureOOMScore, protocol.FeatureDevices, protocol.NumFeatures:
	}
	return nil
}

// classGroup is the strategy's group of a class, "" for one that has none.
func classGroup(class string) string {
	switch class {
	case "LSE", "LSR":
		return "lsrClass"
	case "LS":
		return "lsClass"
	case "BE":
		return "beClass"
	case "SYSTEM":
		return "systemClass"
	}
	return ""
}

// touches reports whether a field is that of the pattern, part of it, or a group that holds it, for a pod of the class; a class that is
// not known may be any.
func touches(field, pattern, class string) bool {
	have, want := strings.Split(field, "."), strings.Split(pattern, ".")
	for i := range min(len(have), len(want)) {
		switch {
		case want[i] == anyClass || want[i] == ownClass && classGroup(class) == "":
			if !strings.HasSuffix(have[i], "Class") {
				return false
			}
		case want[i] == ownClass:
			if have[i] != classGroup(class) {
				return false
			}
		case have[i] != want[i]:
			return false
		}
	}
	return true
}

// overridden is a field that a feature reads and that is not the cluster's.
type overridden struct {
	Feature string `json:"feature"`
	status.Override
}

// agentSLO is koordlet's status where it follows a NodeSLO that is in force, else nil.
func (e *env) agentSLO() *status.Entry {
	for _, d := range e.installed() {
		if d.writer == writerKoordlet && followsSLO(d.status) {
			return d.status
		}
	}
	return nil
}

func followsSLO(s *status.Entry) bool {
	return s != nil && s.Err == "" && s.Agent != nil && strings.HasPrefix(s.StrategySource, sourceHandoff)
}

// fieldsOfSetting are the parts of the strategy from which one setting takes its value: of a knob that is the node's or a QoS class', other ones than
// a pod's.
func fieldsOfSetting(l *line, f protocol.Feature, class string) []string {
	switch {
	case l.Knob == plan.VMMinFree.String():
		return []string{"systemStrategy.minFreeKbytesFactor"}
	case l.Knob == plan.VMWatermarkScale.String():
		return []string{"systemStrategy.watermarkScaleFactor"}
	case l.Target.Level == plan.LevelQoS && f == protocol.FeatureBatch: // suppression by quota
		return fieldsOf(protocol.FeatureCPUSet, class)
	}
	return fieldsOf(f, class)
}

// overriding finds fields that are not the cluster's.
type overriding struct {
	fields []status.Override
	// classes of the pods that koordlet tells of, by UID; any other's may be any.
	classes map[string]string
}

func newOverriding(s *status.Entry) (o overriding) {
	if s == nil || s.Agent.NodeSLO == nil {
		return o
	}
	o.fields, o.classes = s.Agent.NodeSLO.Overrides, make(map[string]string, len(s.Agent.Pods))
	for i := range s.Agent.Pods {
		o.classes[s.Agent.Pods[i].UID] = s.Agent.Pods[i].Class
	}
	return o
}

// of are the fields that a setting has been made from; none of one that is not a feature's, but a hook server's.
func (o *overriding) of(l *line) (out []status.Override) {
	f, is := protocol.ParseFeature(l.Owner)
	if !is || len(o.fields) == 0 {
		return nil
	}
	class := o.classes[l.Target.Pod]
	if l.Target.Level == plan.LevelGroup && l.Target.Pod == "" {
		class = l.Target.Cgroup // a group of resctrl has its class' name
	}
	patterns := fieldsOfSetting(l, f, class)
	for _, field := range o.fields {
		if slices.ContainsFunc(patterns, func(p string) bool { return touches(field.Field, p, class) }) {
			out = append(out, field)
		}
	}
	return out
}

// overrides are those of the fields that the settings have been made from, in the order of the settings.
func overrides(s *status.Entry, lines []line) []overridden {
	o := newOverriding(s)
	var out []overridden
	told := map[[2]string]bool{}
	for i := range lines {
		for _, field := range o.of(&lines[i]) {
			if key := [2]string{lines[i].Owner, field.Field}; !told[key] {
				told[key] = true
				out = append(out, overridden{Feature: lines[i].Owner, Override: field})
			}
		}
	}
	return out
}

// printOverrides is a line for each.
func (e *env) printOverrides(s *status.Entry, list []overridden) {
	asOf := ""
	if len(list) > 0 && !s.Alive {
		asOf = " (as koordlet knew it at " + s.Written.UTC().Format(time.RFC3339) + ")"
	}
	for i := range list {
		o := &list[i]
		field := o.Field
		if o.Value != "" {
			field += " " + o.Value
		}
		by := make([]string, 0, len(o.By))
		for _, w := range o.By {
			text := cell(w.Manager)
			if !w.Time.IsZero() {
				text += ", last at " + w.Time.UTC().Format(time.RFC3339)
			}
			by = append(by, text)
		}
		fmt.Fprintf(e.out, "%s: %s: set by %s, not by the cluster's strategy%s\n", o.Feature, cell(field), strings.Join(by, ", and "), asOf)
	}
}

// overrideTable lists all of them below koordlet's features.
func (e *env) overrideTable(s *status.Entry) error {
	if s.Writer != writerKoordlet || !followsSLO(s) {
		return nil
	}
	o := s.Agent.NodeSLO
	switch {
	case o == nil:
		fmt.Fprintln(e.out, "strategy: the NodeSLO's; who has written its fields is not known until koordlet has read it from the API server")
		return nil
	case len(o.Overrides) == 0:
		fmt.Fprintln(e.out, "strategy: the cluster's; nobody else has written a field of the NodeSLO")
		return nil
	}
	fmt.Fprintln(e.out, "strategy: the cluster's, but for these fields of the NodeSLO, which others have written:")
	rows := make([][]string, 0, len(o.Overrides))
	for i := range o.Overrides {
		f := &o.Overrides[i]
		var names []string
		var last time.Time
		for _, by := range f.By {
			names = append(names, by.Manager)
			if by.Time.After(last) {
				last = by.Time
			}
		}
		at := ""
		if !last.IsZero() {
			at = last.UTC().Format(time.RFC3339)
		}
		rows = append(rows, []string{f.Field, f.Value, strings.Join(names, ", "), at})
	}
	if err := printTable(e.out, []string{"FIELD", "VALUE", "SET BY", "LAST AT"}, rows); err != nil {
		return err
	}
	if o.LeftOut > 0 {
		fmt.Fprintf(e.out, "%d more: kubectl get nodeslo %s -o yaml --show-managed-fields\n", o.LeftOut, cell(s.Agent.Node.Name))
	}
	return nil
}
