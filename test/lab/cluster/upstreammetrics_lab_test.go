// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	agent "github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// unshown are metrics that we have from upstream and that its koordlet does not show on this node, each with the reason.
var unshown = map[string]string{
	"koordlet_cpuset_share_pool_info":                 later,
	"koordlet_cpuset_be_share_pool_info":              later,
	"koordlet_node_predicted_resource_peak":           later,
	"koordlet_node_metric_node_usage":                 later,
	"koordlet_node_metric_system_usage":               later,
	"koordlet_node_metric_numa_node_usage":            later,
	"koordlet_node_metric_numa_system_usage":          later,
	"koordlet_pod_psi":                                "cgroup v1 of mainline tells no pressure",
	"koordlet_container_psi":                          "cgroup v1 of mainline tells no pressure",
	"koordlet_container_cpi":                          "no hardware counters",
	"koordlet_resctrl_llc_occupancy":                  "no resctrl",
	"koordlet_collect_node_local_storage_info_status": "told with the gate BlkIOReconcile alone, which is off by default",
	"koordlet_container_scaled_cfs_burst_us":          "told of a container with a limit of an LS pod, of which there is none here",
	"koordlet_container_scaled_cfs_quota_us":          "told of a container whose quota it has raised, which needs an idle machine",
}

// later are in upstream's sources after the version that runs here.
const later = "newer than 1.8.0"

// checkMetrics: each metric that we serve under upstream's name is in what its koordlet serves, of the same type and with the same labels. The strategy has
// it do what it has metrics for; at last the pod goes.
func checkMetrics(ctx context.Context, t *testing.T, c *cluster.Cluster, k *cluster.Kubelet, u *cluster.Upstream) {
	t.Helper()
	spec := threshold(map[string]any{"enable": true, "cpuSuppressPolicy": "cfsQuota", "memoryEvictThresholdPercent": 2, "memoryEvictLowerPercent": 1})
	maps.Copy(spec, map[string]any{
		"cpuBurstStrategy": map[string]any{"policy": "auto", "cpuBurstPercent": 100}, // which the kernel takes
		"hostApplications": []any{map[string]any{"name": "web", "qos": "LS", "priority": "koord-prod", "cgroupPath": map[string]any{"relativePath": "kubepods/burstable"}}},
	})
	if _, err := c.Admin().Patch(ctx, slos+"/"+k.Node, cluster.MergePatch, map[string]any{"spec": spec}); err != nil {
		t.Fatal(err)
	}
	var theirs map[string]*dto.MetricFamily
	eventually(t, 3*time.Minute, func() (err error) {
		if theirs, err = scrape(ctx, u.Metrics); err != nil {
			return err
		}
		var missing []string
		for _, m := range agent.AgentCatalogue() {
			if strings.HasPrefix(m.Name, "koordlet_") && unshown[m.Name] == "" && theirs[m.Name] == nil {
				missing = append(missing, m.Name)
			}
		}
		if len(missing) > 0 {
			err = fmt.Errorf("upstream's koordlet does not serve %q", missing)
		}
		return err
	})
	seen := 0
	for _, m := range agent.AgentCatalogue() {
		f := theirs[m.Name]
		if f == nil {
			continue
		}
		seen++
		want := strings.Join(slices.Sorted(slices.Values(m.Labels)), " ")
		if kind := strings.ToLower(f.GetType().String()); kind != string(m.Kind) {
			t.Errorf("%s is a %s, upstream's a %s", m.Name, m.Kind, kind)
		}
		for _, s := range f.Metric {
			var labels []string
			for _, l := range s.Label {
				labels = append(labels, l.GetName())
			}
			slices.Sort(labels)
			if got := strings.Join(labels, " "); got != want {
				t.Errorf("%s has labels %s, upstream's %s", m.Name, want, got)
				break
			}
		}
	}
	t.Logf("%d of upstream's metrics are ours by name, type and labels; not shown here: %d", seen, len(unshown))
}

// scrape reads metrics as a Prometheus would.
func scrape(ctx context.Context, url string) (map[string]*dto.MetricFamily, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", url, answer.Status)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	return parser.TextToMetricFamilies(answer.Body)
}
