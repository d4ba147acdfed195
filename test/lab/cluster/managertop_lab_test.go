// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// topOfCluster: koordctl top --cluster, through the real API server, finds the replica that leads by its lease, reads its metrics through
// the API server's proxy, and says what the node object says.
func (r *recommended) topOfCluster(t *testing.T) {
	r.put(t.Context(), t, read(t, manifest("rbac-slo")))
	r.put(t.Context(), t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: slo-controller-config, namespace: "+system+"}\n"+
		"data: {colocation-config: '{\"enable\": true, \"cpuReclaimThresholdPercent\": 60}'}\n")
	amounts := map[string]any{"cpu": "16", "memory": "64Gi", "pods": "100"}
	node := cluster.Object{"metadata": map[string]any{"name": "node-1"}, "status": map[string]any{"capacity": amounts, "allocatable": amounts}}
	if _, err := r.c.Admin().Create(t.Context(), "/api/v1/nodes", node); err != nil {
		t.Fatal(err)
	}
	use := func(cpu, memory string) map[string]any {
		return map[string]any{"resources": map[string]any{"cpu": cpu, "memory": memory}}
	}
	status := map[string]any{
		"updateTime": time.Now().UTC().Format(time.RFC3339),
		"nodeMetric": map[string]any{"nodeUsage": use("3", "4Gi"), "systemUsage": use("2", "3Gi")},
		"podsMetric": []any{map[string]any{"namespace": "shop", "name": "web-abc-1", "podUsage": use("1", "1Gi"), "qos": "LS"}},
	}
	if _, err := r.c.Admin().Patch(t.Context(), reports+"/node-1/status", cluster.MergePatch, map[string]any{"status": status}); err != nil {
		t.Fatal(err)
	}
	port := r.leads(t)
	via := r.kubectlProxy(t)
	args := []string{"top", "--cluster", "--via", via, "--manager-port", strconv.Itoa(port)}
	eventually(t, 30*time.Second, func() error {
		n, out, err := topOfOne(t, args)
		if err != nil {
			return err
		}
		for _, amount := range []*int64{n.Limit.CPU, n.Limit.Memory, n.Usage.CPU, n.Usage.Memory, n.Batch.CPU, n.ShortTermReservation.CPU, n.LongTermReservation.CPU} {
			if amount == nil {
				return fmt.Errorf("not all lines yet: %s", out)
			}
		}
		o := r.get(t, "/api/v1/nodes/node-1")
		batch := quantityAt(t, o, "status", "allocatable", protocol.ResourceBatchCPU) / 1000
		// Production asks for half a core and uses one; 60 % of 16 less one and the system's two are lent; the rest is kept.
		if n.Name != "node-1" || *n.Limit.CPU != 500 || *n.Limit.Memory != 512<<20 || *n.Usage.CPU != 1000 || *n.Usage.Memory != 1<<30 ||
			*n.Batch.CPU != 6600 || batch != 6600 || *n.ShortTermReservation.CPU != 16000-6600 || *n.LongTermReservation.CPU != 500 {
			return fmt.Errorf("batch-cpu of the node %d: %s", batch, out)
		}
		return nil
	})
	table, err := exec.CommandContext(t.Context(), bin("koordctl"), args...).CombinedOutput()
	if err != nil || !strings.Contains(string(table), "node-1") || !strings.Contains(string(table), "6.60") {
		t.Errorf("%v: %s", err, table)
	}
	t.Logf("\n%s", table)
	r.toldOfNode(t)
	r.lendsNothing(t, args)
}

// topAmount and topNode are of koordctl top --cluster as JSON.
type topAmount struct {
	CPU    *int64 `json:"cpuMilli"`
	Memory *int64 `json:"memoryBytes"`
}

type topNode struct {
	Name                                      string
	Limit, Usage, Batch                       topAmount
	ShortTermReservation, LongTermReservation topAmount
}

// topOfOne is what koordctl says of the only node, and its words.
func topOfOne(t *testing.T, args []string) (topNode, []byte, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), bin("koordctl"), append(slices.Clone(args), "-o", "json")...).CombinedOutput()
	if err != nil {
		return topNode{}, nil, fmt.Errorf("%w: %s", err, out)
	}
	var picture struct{ Nodes []topNode }
	if err := json.Unmarshal(out, &picture); err != nil {
		return topNode{}, nil, fmt.Errorf("%w: %s", err, out)
	}
	if len(picture.Nodes) != 1 {
		return topNode{}, nil, fmt.Errorf("lines of %d nodes: %s", len(picture.Nodes), out)
	}
	return picture.Nodes[0], out, nil
}

// toldOfNode: labels of one node say what part of it may be lent, and with the gate its GPUs are counted as shared ones too.
func (r *recommended) toldOfNode(t *testing.T) {
	t.Helper()
	ratios := map[string]any{"metadata": map[string]any{"labels": map[string]any{protocol.LabelCPUReclaimRatio: "0.5", protocol.LabelMemoryReclaimRatio: "0.5"}}}
	if _, err := r.c.Admin().Patch(t.Context(), "/api/v1/nodes/node-1", cluster.MergePatch, ratios); err != nil {
		t.Fatal(err)
	}
	r.put(t.Context(), t, `{apiVersion: scheduling.koordinator.sh/v1alpha1, kind: Device, metadata: {name: node-1}, spec: {devices: [
  {type: gpu, minor: 0, health: true, resources: {koordinator.sh/gpu-core: 100, koordinator.sh/gpu-memory-ratio: 100, koordinator.sh/gpu-memory: 16Gi}},
  {type: gpu, minor: 1, health: true, resources: {koordinator.sh/gpu-core: 100, koordinator.sh/gpu-memory-ratio: 100, koordinator.sh/gpu-memory: 16Gi}}]}}`)
	eventually(t, 30*time.Second, func() error {
		o := r.get(t, "/api/v1/nodes/node-1")
		amount := func(name string) string { return o.Str("status", "allocatable", name) }
		// Half of 16 CPUs and 64 GiB, less what production and the system use.
		if amount(protocol.ResourceBatchCPU) != "5k" || amount(protocol.ResourceBatchMemory) != "30064771072" || amount(protocol.ResourceGPUShared) != "200" {
			return fmt.Errorf("the node has %s", o.Compact("status", "allocatable"))
		}
		return nil
	})
}

// lendsNothing: with colocation off, and without a report that counts, the table goes on telling the lines, and says why there is no BATCH.
func (r *recommended) lendsNothing(t *testing.T, args []string) {
	t.Helper()
	row := func(want string) {
		t.Helper()
		eventually(t, 30*time.Second, func() error {
			out, err := exec.CommandContext(t.Context(), bin("koordctl"), args...).CombinedOutput()
			text := strings.Join(strings.Fields(string(out)), " ")
			if err != nil || !strings.Contains(text, want) || !strings.Contains(text, "1 lend nothing: ") {
				return fmt.Errorf("%w: want %q: %s", err, want, out)
			}
			return nil
		})
	}
	off := map[string]any{"data": map[string]any{"colocation-config": `{"enable": false}`}}
	if _, err := r.c.Admin().Patch(t.Context(), strategies, cluster.MergePatch, off); err != nil {
		t.Fatal(err)
	}
	row("node-1 0.50 1 16 0.50 - - 512 MiB 1 GiB 64 GiB 512 MiB - - 0")
	old := map[string]any{"status": map[string]any{"updateTime": time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)}}
	if _, err := r.c.Admin().Patch(t.Context(), reports+"/node-1/status", cluster.MergePatch, old); err != nil {
		t.Fatal(err)
	}
	row("node-1 0.50 - 16 0.50 - - 512 MiB - 64 GiB 512 MiB - - 0")
}

// leads starts a koord-manager with the role slo, and a Pod object that says where it can be reached: named after the host, as the
// holder of the lease is. It returns the port of its metrics.
func (r *recommended) leads(t *testing.T) int {
	t.Helper()
	kubeconfig, err := r.c.Kubeconfig(managerUser, "system:serviceaccounts", "system:serviceaccounts:"+system)
	if err != nil {
		t.Fatal(err)
	}
	ip := reachable(t)
	ports, err := lab.FreePorts(ip, 1)
	if err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort(ip, strconv.Itoa(ports[0]))
	r.runs(kubeconfig, "--metrics-addr="+address, "--health-probe-addr="+freeAddresses(t, 1)[0], "--roles=slo", "--feature-gates=EnableSyncGPUSharedResource=true")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	r.put(t.Context(), t, "apiVersion: v1\nkind: Pod\nmetadata: {name: "+host+", namespace: "+system+"}\nspec: {nodeName: node-3, containers: [{name: manager, image: i}]}\n")
	where := map[string]any{"status": map[string]any{"phase": "Running", "podIP": ip, "podIPs": []any{map[string]any{"ip": ip}}}}
	if _, err := r.c.Admin().Patch(t.Context(), "/api/v1/namespaces/"+system+"/pods/"+host+"/status", cluster.MergePatch, where); err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(address)
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// reachable is an address of this machine that API servers proxy to: not loopback.
func reachable(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if n, is := a.(*net.IPNet); is && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	t.Fatalf("the API server's proxy goes to no loopback address, and this machine has no other: %v", all)
	return ""
}

// kubectlProxy is what kubectl proxy does with requests that read: it adds who asks.
func (r *recommended) kubectlProxy(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx, cancel := context.WithTimeout(req.Context(), soon)
		defer cancel()
		text, err := r.c.Admin().Text(ctx, req.URL.RequestURI())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		_, _ = io.WriteString(w, text) // who has gone away needs no answer
	}))
	t.Cleanup(s.Close)
	return s.URL
}
