// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package metrics

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Names and labels of upstream's koordlet at a7a1b76b (July 2026, after 1.8.0): pkg/koordlet/metrics.
func TestAgentNamesAreUpstreams(t *testing.T) {
	t.Parallel()
	const pod = " pod_name pod_namespace pod_uid"
	const container = "container_id container_name node" + pod
	upstream := map[string]string{
		"start_time": "node", "node_used_cpu_cores": "node", "node_used_memory_bytes": "node",
		"node_resource_allocatable":   "node resource unit",
		"container_resource_requests": container + " resource unit", "container_resource_limits": container + " resource unit",
		"be_suppress_cpu_cores": "node type", "be_suppress_ls_used_cpu_cores": "node", "be_suppress_be_used_cpu_cores": "node",
		"pod_eviction": "node reason", "pod_eviction_detail": "node pod_name pod_namespace reason",
		"container_scaled_cfs_quota_us": "container_id container_name node pod_name pod_namespace",
		"container_scaled_cfs_burst_us": "container_id container_name node pod_name pod_namespace",
		"cpuset_share_pool_cpu_cores":   "node", "cpuset_be_share_pool_cpu_cores": "node",
		"cpuset_share_pool_info": "cpu node", "cpuset_be_share_pool_info": "cpu node",
		"node_predicted_resource_reclaimable": "node predictor resource unit", "node_predicted_resource_peak": "node predictor resource unit",
		"node_priority_resource_reclaimable": "node priority resource unit", "node_resource_priority_reclaimable_status": "node priority",
		"host_application_resource_usage": "host_application_name node priority_class qos resource",
		"pod_psi":                         "cpu_full_supported node" + pod + " psi_degree psi_precision psi_resource_type",
		"container_psi":                   "container_id container_name cpu_full_supported node" + pod + " psi_degree psi_precision psi_resource_type",
		"container_cpi":                   "container_id container_name cpi_field node" + pod,
		"resctrl_llc_occupancy":           "cache_id node qos",
		"node_metric_node_usage":          "node resource unit", "node_metric_system_usage": "node resource unit",
		"node_metric_numa_node_usage": "node numa_node_id resource unit", "node_metric_numa_system_usage": "node numa_node_id resource unit",
		"kubelet_request_duration_seconds": "code path verb", "resource_update_duration_milliseconds": "status type",
		"collect_node_cpu_info_status": "node status", "collect_node_numa_info_status": "node status",
		"collect_node_local_storage_info_status": "node status",
	}
	got := map[string]string{}
	for _, m := range AgentCatalogue() {
		if m.Help == "" || m.Kind == "" || len(m.Labels) > 0 && m.Values == "" {
			t.Errorf("%q is not documented", m.Name)
		}
		if name, ok := strings.CutPrefix(m.Name, "koordlet_"); ok {
			got[name] = strings.Join(slices.Sorted(slices.Values(m.Labels)), " ")
		} else if !strings.HasPrefix(m.Name, "koord_rt_koordlet_") {
			t.Errorf("%q is neither upstream's nor ours", m.Name)
		}
	}
	if d := cmp.Diff(upstream, got); d != "" {
		t.Errorf("(-upstream +ours):\n%s", d)
	}
}

func TestAgentCounters(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	names := AgentNames{Node: "n1", Loops: []string{"suppress", "evict"}, Features: []string{"BEMemoryEvict"}, Objects: []string{"nodemetrics"}}
	m, err := NewAgent(reg, names)
	if err != nil {
		t.Fatal(err)
	}
	m.Loop("suppress", 2*time.Millisecond, false)
	m.Loop("evict", time.Second, true)
	for i := range 3 {
		m.Loop(fmt.Sprint("hostile-", i), time.Second, true)
	}
	m.Reaction(180 * time.Millisecond)
	m.Evict("BEMemoryEvict", EvictionDone)
	m.Evict("BEMemoryEvict", EvictionRefused)
	m.Evict("hostile", EvictionDone)
	m.Evict("BEMemoryEvict", NumEvictions)
	m.APIWrite("nodemetrics", false)
	m.APIWrite("hostile", true)
	m.Scan(5000, 3)
	m.KubeletAnswered("GET", "/pods", 200, 3*time.Millisecond)
	m.KubeletAnswered("GET", "/configz", 403, time.Millisecond)
	m.KubeletAnswered("PUT", "/hostile/1", 7777, time.Second)
	m.KubeletAnswered("PUT", "/hostile/2", -1, time.Second)
	m.Updated(UpdateCgroup, 40*time.Microsecond, false)
	m.Updated(UpdateCgroup, 40*time.Microsecond, true)
	m.Updated(UpdateSchemata, 40*time.Microsecond, false)
	m.Updated(UpdateOther, 40*time.Microsecond, false)
	m.Updated(NumUpdates, time.Second, false)
	m.Collected(CollectCPU, false)
	m.Collected(CollectNUMA, true)
	m.Collected(CollectStorage, false)
	m.Collected(NumCollects, true)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, s := range f.Metric {
			var labels []string
			for _, l := range s.Label {
				labels = append(labels, l.GetValue())
			}
			v := s.GetCounter().GetValue()
			if h := s.GetHistogram(); h != nil {
				v = float64(h.GetSampleCount())
			}
			got[strings.TrimPrefix(f.GetName(), "koord_rt_koordlet_")+" "+strings.Join(labels, " ")] = v
		}
	}
	want := map[string]float64{
		"loop_duration_seconds suppress": 1, "loop_duration_seconds evict": 1, "loop_duration_seconds other": 3,
		"loop_errors_total evict": 1, "loop_errors_total other": 3, "reaction_seconds ": 1,
		"koordlet_pod_eviction n1 BEMemoryEvict": 1, "koordlet_pod_eviction n1 other": 1,
		"evictions_total BEMemoryEvict evicted": 1, "evictions_total BEMemoryEvict refused": 1, "evictions_total other evicted": 1,
		"samples_total ": 5000, "read_errors_total ": 3,
		"api_writes_total nodemetrics ok": 1, "api_writes_total other error": 1,
		"koordlet_kubelet_request_duration_seconds 200 /pods/ get": 1, "koordlet_kubelet_request_duration_seconds 403 /configz get": 1,
		"koordlet_kubelet_request_duration_seconds other other other":   2,
		"koordlet_resource_update_duration_milliseconds success cgroup": 1, "koordlet_resource_update_duration_milliseconds failed cgroup": 1,
		"koordlet_resource_update_duration_milliseconds success resctrl-schema": 1, "koordlet_resource_update_duration_milliseconds success default": 1,
		"koordlet_collect_node_cpu_info_status n1 succeeded": 1, "koordlet_collect_node_numa_info_status n1 failed": 1,
		"koordlet_collect_node_local_storage_info_status n1 succeeded": 1,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if h := sum(families, "koordlet_resource_update_duration_milliseconds"); h < 0.15 || h > 0.17 {
		t.Errorf("four writes of 40 µs took %v ms", h)
	}
	if _, err := NewAgent(reg, names); err == nil {
		t.Error("registered twice")
	}
	if n := testing.AllocsPerRun(100, func() {
		m.Loop("suppress", time.Millisecond, true)
		m.Scan(1, 0)
		m.Updated(UpdateCgroup, time.Millisecond, false)
		m.Collected(CollectNUMA, true)
	}); n != 0 {
		t.Errorf("%v allocations in a tick", n)
	}
}

// sum of a histogram over all series.
func sum(families []*dto.MetricFamily, name string) (total float64) {
	for _, f := range families {
		if f.GetName() == name {
			for _, s := range f.Metric {
				total += s.GetHistogram().GetSampleSum()
			}
		}
	}
	return total
}

func TestMoreRoutes(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "m.sock")
	ctx, cancel := context.WithCancel(t.Context())
	l, err := Listen(ctx, "unix:"+path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		done <- Serve(ctx, l, prometheus.NewRegistry(), nil, Route{"GET /events", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "event")
		})})
	}()
	for p, want := range map[string]string{"/events": "event", "/healthz": "ok\n", "/metrics": ""} {
		if code, body := get(t, path, p); code != http.StatusOK || body != want {
			t.Errorf("%s: %d %q", p, code, body)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Whoever made the listener, nothing is served to other machines.
func TestServeRefusesOtherMachines(t *testing.T) {
	t.Parallel()
	for address, refused := range map[string]bool{"0.0.0.0:0": true, "127.0.0.1:0": false} {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", address)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err = Serve(ctx, l, prometheus.NewRegistry(), nil)
		if (err != nil) != refused {
			t.Errorf("%s: %v", address, err)
		}
		if _, err := l.Accept(); err == nil {
			t.Errorf("%s: left open", address)
		}
	}
}
