// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// inspect shows the same container as crictl sees it, and which of the two places is true.
func (d *demo) inspect(ctx context.Context, r *kubelet.Running) error {
	name := r.Pod.Containers[0].Name
	id := r.Containers[name]
	// crictl gives up after 2 s by itself, which a busy machine may need.
	text, err := output(ctx, d.crictl, "--timeout", "30s", "--runtime-endpoint", "unix://"+d.host.Socket, "inspect", id)
	if err != nil {
		return err
	}
	var got inspected
	if err := json.Unmarshal(text, &got); err != nil {
		return fmt.Errorf("read crictl's answer: %w", err)
	}
	applied := got.Info.RuntimeSpec.Annotations[protocol.AnnotationApplied]
	if applied == "" {
		return errors.New("crictl shows no annotation koord-rt.dev/applied")
	}
	d.screen.title("3. The same in crictl")
	d.screen.command(fmt.Sprintf("crictl inspect %.13s   # %s/%s, excerpt", id, r.Pod.Name, name))
	d.screen.line("  info.runtimeSpec.annotations[koord-rt.dev/applied]:")
	for _, l := range breakAfterCommas(applied, d.screen.width-6) {
		d.screen.line("    %s", d.screen.paint(green, l))
	}
	status, spec := got.Status.Resources.Linux, got.Info.RuntimeSpec
	cpu, memory := spec.Linux.Resources.CPU, spec.Linux.Resources.Memory
	rows := [][]string{
		{"CPU shares", status.CPUShares.String(), number(cpu.Shares)},
		{"CPU quota", status.CPUQuota.String(), number(cpu.Quota)},
		{"memory limit", status.Memory.String(), number(memory.Limit)},
		{"oom_score_adj", status.OOMScoreAdj.String(), number(spec.Process.OOMScoreAdj)},
	}
	d.screen.table([]string{"", "status.resources", "info.runtimeSpec"}, rows, []string{dim, dim, bold + ";" + green})
	d.screen.line("  True is info.runtimeSpec, as the kernel above: the container runs with it. status.resources repeats what the kubelet")
	d.screen.line("  asked for (0: nothing); containerd does not rewrite it when a plugin changes the container.")
	return nil
}

// breakAfterCommas cuts text into lines of at most width bytes where a comma allows.
func breakAfterCommas(text string, width int) []string {
	var out []string
	for len(text) > width {
		cut := strings.LastIndexByte(text[:width], ',')
		if cut < 0 {
			break
		}
		out = append(out, text[:cut+1])
		text = text[cut+1:]
	}
	return append(out, text)
}

// inspected is the part of crictl's answer that is shown.
type inspected struct {
	Status struct {
		Resources struct {
			Linux struct {
				CPUShares   json.Number `json:"cpuShares"`
				CPUQuota    json.Number `json:"cpuQuota"`
				Memory      json.Number `json:"memoryLimitInBytes"`
				OOMScoreAdj json.Number `json:"oomScoreAdj"`
			} `json:"linux"`
		} `json:"resources"`
	} `json:"status"`
	Info struct {
		RuntimeSpec struct {
			Annotations map[string]string `json:"annotations"`
			Process     struct {
				OOMScoreAdj *json.Number `json:"oomScoreAdj"`
			} `json:"process"`
			Linux struct {
				Resources struct {
					CPU struct {
						Shares *json.Number `json:"shares"`
						Quota  *json.Number `json:"quota"`
					} `json:"cpu"`
					Memory struct {
						Limit *json.Number `json:"limit"`
					} `json:"memory"`
				} `json:"resources"`
			} `json:"linux"`
		} `json:"runtimeSpec"`
	} `json:"info"`
}

func number(n *json.Number) string {
	if n == nil {
		return "-"
	}
	return n.String()
}
