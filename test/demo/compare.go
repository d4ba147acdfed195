// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// setting is what `koordctl explain -o json` tells of one knob.
type setting struct {
	Level  string `json:"level"`
	Name   string `json:"name"`
	Knob   string `json:"knob"`
	Want   string `json:"want"`
	Drift  string `json:"drift"`
	Owner  string `json:"owner"`
	Reason string `json:"reason"`
}

// settled asks koordctl about the three pods until the kernel holds every value: those of pods and of containers that
// had to make room follow within moments of the creation.
func (d *demo) settled(ctx context.Context) ([]setting, error) {
	var out []setting
	err := poll(ctx, time.Minute, func() error {
		out = nil
		for _, p := range pods(machine{}) {
			one, err := d.held(ctx, "default/"+p.Name)
			if err != nil {
				return err
			}
			out = append(out, one...)
		}
		return nil
	})
	return out, err
}

// held asks koordctl about a pod; it is an error when the kernel does not hold what was set.
func (d *demo) held(ctx context.Context, pod string) ([]setting, error) {
	text, err := d.ctl(ctx, "explain", pod, "-o", "json")
	if err != nil {
		return nil, err
	}
	var one struct{ Settings []setting }
	if err := json.Unmarshal(text, &one); err != nil {
		return nil, fmt.Errorf("read koordctl's answer: %w", err)
	}
	for _, s := range one.Settings {
		if s.Drift == "yes" || s.Drift == "failed" {
			return nil, fmt.Errorf("%s %s: the kernel does not hold %s", s.Name, s.Knob, s.Want)
		}
	}
	return one.Settings, nil
}

// compare prints what is different for a pod: its container, then the pod's cgroup.
func (d *demo) compare(r *kubelet.Running, before, now reading, settings []setting) {
	container := r.Pod.Containers[0].Name
	var rows [][]string
	for _, level := range []string{container, ""} {
		for _, s := range sights(d.tree.V2()) {
			at := place{pod: r.Pod.Name, container: level, file: s.file}
			if before[at] == now[at] {
				continue
			}
			rows = append(rows, []string{where(level), s.file, human(s.file, before[at]), human(s.file, now[at]), why(settings, at, s)})
		}
	}
	d.screen.line("\n  %s", d.screen.paint(bold, fmt.Sprintf("%s  class %s", r.Pod.Name+"/"+container, r.Pod.Labels["koordinator.sh/qosClass"])))
	if len(rows) == 0 {
		d.screen.line("  nothing differs")
		return
	}
	// One word per block of rows is enough.
	for i := len(rows) - 1; i > 0; i-- {
		if rows[i][0] == rows[i-1][0] {
			rows[i][0] = ""
		}
	}
	d.screen.table([]string{"", "value", "without us", "in the kernel now", "why"}, rows, []string{dim, "", dim, bold + ";" + green, ""})
}

func where(container string) string {
	if container == "" {
		return "pod"
	}
	return "container"
}

// why is owner and reason of the knobs that stand in a file; a pod without a namespace is in the default one.
func why(settings []setting, at place, s sight) string {
	name := at.pod
	if !strings.Contains(name, "/") {
		name = "default/" + name
	}
	if at.container != "" {
		name += "/" + at.container
	}
	var out []string
	for _, k := range s.knobs {
		i := slices.IndexFunc(settings, func(x setting) bool {
			return x.Level == where(at.container) && x.Name == name && x.Knob == k.String()
		})
		if i >= 0 {
			text := settings[i].Owner + ": " + settings[i].Reason
			if !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	if len(out) == 0 {
		return "side effect of another value of this cgroup"
	}
	return strings.Join(out, "; ")
}
