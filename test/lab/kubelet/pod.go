// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package kubelet makes pods the way kubelet 1.36 does, without an API server: QoS
// and pod cgroups with kubelet's values, sandboxes and containers over CRI, in-place
// resize in kubelet's order. Cgroups are made with the library that kubelet uses
// (github.com/opencontainers/cgroups v0.0.6: cgroupfs, or systemd over D-Bus; v1 and v2).
//
// Input: a Pod (a struct that a scenario file can hold) and a CRI client. Output:
// cgroups, a sandbox, containers. Left out of kubelet: probes, volumes, hugepage
// limits, swap for pods, pid limits, MemoryQoS, CPU and memory managers (a pod may
// say what they would), sidecars, pod-level resources. It must not import any package under test.
package kubelet

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Pod is the part of a Kubernetes pod that reaches a container runtime.
type Pod struct {
	Name           string              `json:"name"`                     // required
	Namespace      string              `json:"namespace,omitempty"`      // optional: default "default"
	UID            string              `json:"uid"`                      // required, no / or _
	Labels         map[string]string   `json:"labels,omitempty"`         // optional
	Annotations    map[string]string   `json:"annotations,omitempty"`    // optional
	RuntimeHandler string              `json:"runtimeHandler,omitempty"` // optional: default the runtime's
	Overhead       map[string]Quantity `json:"overhead,omitempty"`       // optional: RuntimeClass overhead
	NodeCritical   bool                `json:"nodeCritical,omitempty"`   // optional: priority class system-node-critical
	Privileged     bool                `json:"privileged,omitempty"`     // optional: all containers; on cgroup v2 they see the whole tree
	QuotaPeriod    int64               `json:"quotaPeriod,omitempty"`    // optional: the kubelet's cpuCFSQuotaPeriod in µs, default 100000
	Containers     []Container         `json:"containers"`               // at least one
}

// FullName is the pod's name with its namespace, as our programs log it.
func (p Pod) FullName() string { return p.namespace() + "/" + p.Name }

func (p Pod) quotaPeriod() int64 { return cmp.Or(p.QuotaPeriod, quotaPeriod) }

// Container of a Pod.
type Container struct {
	Name       string            `json:"name"`                 // required
	Init       bool              `json:"init,omitempty"`       // optional: an init container, which ends before the next one starts
	Command    []string          `json:"command,omitempty"`    // optional: default the image's, which sleeps
	Env        map[string]string `json:"env,omitempty"`        // optional
	CDIDevices []string          `json:"cdiDevices,omitempty"` // optional: names as a device plugin would return
	Mounts     []Mount           `json:"mounts,omitempty"`     // optional: folders of the machine
	Resources  Resources         `json:"resources,omitzero"`   // optional
	CPUs       string            `json:"cpus,omitempty"`       // optional: where static CPU and memory managers put it
	Mems       string            `json:"mems,omitempty"`       // optional
}

// Mount is a folder of the machine, with what is mounted below it, that a container can read.
type Mount struct {
	HostPath      string `json:"hostPath"`      // required
	ContainerPath string `json:"containerPath"` // required
}

// Resources by name. cpu and memory count; extended resources such as
// kubernetes.io/batch-cpu are accepted and, as in CRI, carried nowhere.
type Resources struct {
	Requests map[string]Quantity `json:"requests,omitempty"`
	Limits   map[string]Quantity `json:"limits,omitempty"`
}

// ParsePod reads a Pod from YAML or JSON; unknown fields are errors.
func ParsePod(text []byte) (Pod, error) {
	var p Pod
	if err := yaml.UnmarshalStrict(bytes.TrimSpace(text), &p); err != nil {
		return Pod{}, fmt.Errorf("parse pod: %w", err)
	}
	return p, p.Validate()
}

// Validate reports every fault of the pod.
func (p Pod) Validate() error {
	var errs []error
	add := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("pod %s: "+format, append([]any{p.Name}, args...)...))
	}
	if p.Name == "" {
		add("name is empty")
	}
	if p.UID == "" || strings.ContainsAny(p.UID, "/_") {
		add("uid %q is empty or holds / or _", p.UID)
	}
	if len(p.Containers) == 0 {
		add("no containers")
	}
	var names []string
	for _, c := range p.Containers {
		if c.Name == "" || slices.Contains(names, c.Name) {
			add("container name %q is empty or repeated", c.Name)
		}
		if c.Init && len(names) > 0 && !p.Containers[len(names)-1].Init {
			add("init container %s after one that is none", c.Name)
		}
		names = append(names, c.Name)
		for list, set := range map[string]map[string]Quantity{"requests": c.Resources.Requests, "limits": c.Resources.Limits} {
			for name, q := range set {
				if _, err := q.Milli(); err != nil {
					add("container %s: %s.%s: %w", c.Name, list, name, err)
				}
			}
		}
	}
	for name, q := range p.Overhead {
		if _, err := q.Milli(); err != nil {
			add("overhead.%s: %w", name, err)
		}
	}
	return errors.Join(errs...)
}

func (p Pod) namespace() string {
	if p.Namespace == "" {
		return "default"
	}
	return p.Namespace
}
