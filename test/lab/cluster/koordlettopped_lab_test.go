// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// topped is what `kubectl top pods` goes by for one pod.
type topped struct {
	cpu    float64 // seconds
	at     time.Time
	memory float64 // the working set, bytes
}

// tops reads it from the kubelet as metrics-server does, by the pod's name.
func (n *governed) tops(t *testing.T) map[string]topped {
	t.Helper()
	text, err := n.k.Resources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]topped{}
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(line, "{")
		labels, value, ok := strings.Cut(rest, "} ")
		_, pod, of := strings.Cut(labels, `pod="`)
		words := strings.Fields(value)
		if !ok || !of || len(words) != 2 {
			continue
		}
		pod, _, _ = strings.Cut(pod, `"`)
		v, err := strconv.ParseFloat(words[0], 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		p := out[pod]
		switch name {
		case "pod_cpu_usage_seconds_total":
			ms, err := strconv.ParseInt(words[1], 10, 64)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			p.cpu, p.at = v, time.UnixMilli(ms)
		case "pod_memory_working_set_bytes":
			p.memory = v
		default:
			continue
		}
		out[pod] = p
	}
	return out
}

// asTopped: the NodeMetric says of a pod's use what kubectl top says: memory within a tenth, or 8 MiB; CPU since before within a quarter, or
// a twentieth of one, of pods whose load is even.
func (n *governed) asTopped(t *testing.T, metric cluster.Object, before map[string]topped) error {
	t.Helper()
	now := n.tops(t)
	var errs []error
	list, _ := metric.At("status", "podsMetric").([]any)
	for i := range list {
		name := metric.Str("status", "podsMetric", i, "name")
		at := []any{"status", "podsMetric", i, "podUsage", "resources"}
		cpu, memory := amount(t, metric.Str(append(at, "cpu")...)), amount(t, metric.Str(append(at, "memory")...))
		was, is := before[name], now[name]
		if is.memory == 0 || math.Abs(memory-is.memory) > max(is.memory/10, 8*mib) {
			errs = append(errs, fmt.Errorf("%s: kubectl top has %.1f MiB, the NodeMetric %.1f", name, is.memory/mib, memory/mib))
		}
		if name == "victim" { // spins now and then
			continue
		}
		spent := is.at.Sub(was.at).Seconds()
		rate := (is.cpu - was.cpu) / spent
		if was.at.IsZero() || spent < 10 || math.Abs(cpu-rate) > max(rate/4, 0.05) {
			errs = append(errs, fmt.Errorf("%s: kubectl top has %.3f CPUs in %.0f s, the NodeMetric %.3f", name, rate, spent, cpu))
		}
	}
	return errors.Join(errs...)
}
