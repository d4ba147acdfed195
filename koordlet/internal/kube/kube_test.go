// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kube_test

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/koord-rt/koord-rt/koordlet/internal/amount"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube/kubetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	slos  = "/apis/slo.koordinator.sh/v1alpha1/nodeslos"
	nodes = "/api/v1/nodes"
	shop  = "/api/v1/namespaces/shop/pods"
)

func client(t *testing.T, s *kubetest.Server) *kube.Client {
	t.Helper()
	c, err := kube.New(kube.Config{Server: s.URL, Trust: s.Trust})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestGetAndErrors(t *testing.T) {
	t.Parallel()
	s := kubetest.New(t)
	c := client(t, s)
	if _, err := c.Get(t.Context(), kube.NodeSLOs, "node-001"); !errors.Is(err, kube.ErrNotServed) || errors.Is(err, kube.ErrNotFound) {
		t.Errorf("no CRD: %v", err)
	}
	s.Serve(slos)
	if _, err := c.Get(t.Context(), kube.NodeSLOs, "node-001"); !errors.Is(err, kube.ErrNotFound) || errors.Is(err, kube.ErrNotServed) {
		t.Errorf("no object: %v", err)
	}
	s.Put(t, slos, `{"metadata":{"name":"node-001"}}`)
	if raw, err := c.Get(t.Context(), kube.NodeSLOs, "node-001"); err != nil || !strings.Contains(string(raw), `"node-001"`) {
		t.Errorf("%s %v", raw, err)
	}
	for name, x := range map[string]struct {
		code int
		body string
		want error
		text string
	}{
		"forbidden":        {403, kubetest.Status(403, "Forbidden", "nodeslos is forbidden", "node-001"), kube.ErrDenied, "403 Forbidden: nodeslos is forbidden"},
		"unauthorized":     {401, "Unauthorized", kube.ErrDenied, "401 Unauthorized: Unauthorized"},
		"conflict":         {409, kubetest.Status(409, "Conflict", "UID", "x"), kube.ErrConflict, "409"},
		"expired":          {410, kubetest.Status(410, "Expired", "too old", ""), kube.ErrGone, "410"},
		"from the future":  {504, kubetest.Status(504, "Timeout", "Too large resource version: 9, current: 5", "", "ResourceVersionTooLarge"), kube.ErrGone, "504"},
		"budget":           {429, kubetest.Status(429, "TooManyRequests", "Cannot evict", "x", "DisruptionBudget"), kube.ErrBudget, "429"},
		"flow control":     {429, kubetest.Status(429, "TooManyRequests", "too many requests", ""), kube.ErrBusy, "429"},
		"starting":         {503, "apiserver not ready\n\x1b[31m", kube.ErrBusy, "503 Service Unavailable: apiserver not ready  [31m"},
		"plain text 404":   {404, "404 page not found", kube.ErrNotServed, "404"},
		"webhook away":     {500, kubetest.Status(500, "InternalError", `Internal error occurred: failed calling webhook "v": refused`, ""), kube.ErrBusy, "500"},
		"webhook unsure":   {503, kubetest.Status(503, "ServiceUnavailable", `admission webhook "v" denied the request: try again`, ""), kube.ErrBusy, "503"},
		"long and no JSON": {500, strings.Repeat("x", 100_000), nil, "500 Internal Server Error: xxx"},
	} {
		s.Fail(func(*http.Request) (int, string) { return x.code, x.body })
		_, err := c.Get(t.Context(), kube.NodeSLOs, "node-001")
		if x.want != nil && !errors.Is(err, x.want) || err == nil || !strings.Contains(err.Error(), x.text) || len(err.Error()) > 700 {
			t.Errorf("%s: %.300v", name, err)
		}
		if errors.Is(err, kube.ErrWebhook) != strings.HasPrefix(name, "webhook") {
			t.Errorf("%s: a webhook's fault: %t", name, errors.Is(err, kube.ErrWebhook))
		}
		for _, other := range []error{kube.ErrNotServed, kube.ErrNotFound, kube.ErrDenied, kube.ErrConflict, kube.ErrGone, kube.ErrBudget, kube.ErrBusy} {
			if errors.Is(err, other) != (other == x.want) { //nolint:errorlint // two sentinels are compared
				t.Errorf("%s is %v", name, other)
			}
		}
	}
	s.Fail(nil)
	s.Down(true)
	if _, err := c.Get(t.Context(), kube.NodeSLOs, "node-001"); err == nil {
		t.Error("an answer from a server that is down")
	}
}

func TestReplaceStatus(t *testing.T) {
	t.Parallel()
	s := kubetest.New(t)
	c := client(t, s)
	s.Put(t, slos, `{"metadata":{"name":"node-001"},"spec":{"a":1},"status":{"old":true}}`)
	if err := c.ReplaceStatus(t.Context(), kube.NodeSLOs, "node-001", "koordlet", map[string]any{"new": 1}); err != nil {
		t.Fatal(err)
	}
	o := s.Object(slos, "node-001")
	delete(o, "metadata")
	if d := cmp.Diff(kubetest.Object{"spec": map[string]any{"a": 1.0}, "status": map[string]any{"new": 1.0}}, o); d != "" {
		t.Error(d)
	}
	got := s.Requests("PATCH ")
	if len(got) != 1 || got[0].Path != slos+"/node-001/status" || got[0].Query != "fieldManager=koordlet" || got[0].ContentType != "application/json-patch+json" {
		t.Errorf("%+v", got)
	}
	if err := c.ReplaceStatus(t.Context(), kube.NodeSLOs, "node-002", "koordlet", nil); !errors.Is(err, kube.ErrNotFound) {
		t.Errorf("missing object: %v", err)
	}
	if err := c.ReplaceStatus(t.Context(), kube.NodeSLOs, "node-001", "koordlet", func() {}); err == nil {
		t.Error("a status that is no JSON was sent")
	}
}

func TestEvictAndDelete(t *testing.T) {
	t.Parallel()
	s := kubetest.New(t)
	c := client(t, s)
	s.Put(t, shop, `{"metadata":{"name":"web-0","namespace":"shop","uid":"u-1"}}`)
	if err := c.Evict(t.Context(), "shop", "web-0", "u-2", time.Second); !errors.Is(err, kube.ErrConflict) {
		t.Errorf("another UID: %v", err)
	}
	if err := c.Evict(t.Context(), "shop", "gone", "u-1", time.Second); !errors.Is(err, kube.ErrNotFound) {
		t.Errorf("no such pod: %v", err)
	}
	if err := c.Evict(t.Context(), "shop", "web-0", "u-1", 1500*time.Millisecond); err != nil {
		t.Error(err)
	}
	if m := s.Object(shop, "web-0")["metadata"].(kubetest.Object); m["deletionTimestamp"] == nil {
		t.Errorf("%v", m)
	}
	if err := c.DeletePod(t.Context(), "shop", "web-0", "u-1", -1); err != nil {
		t.Error(err)
	}
	uid := map[string]any{"uid": "u-1"}
	want := []kubetest.Request{
		{Method: "POST", Path: shop + "/web-0/eviction", ContentType: "application/json", Body: kubetest.Object{
			"apiVersion": "policy/v1", "kind": "Eviction", "metadata": map[string]any{"namespace": "shop", "name": "web-0"},
			"deleteOptions": map[string]any{"gracePeriodSeconds": 2.0, "preconditions": uid},
		}},
		{Method: "DELETE", Path: shop + "/web-0", ContentType: "application/json", Body: kubetest.Object{"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": uid}},
	}
	if d := cmp.Diff(want, append(s.Requests("POST " + shop + "/web-0")[1:], s.Requests("DELETE ")...)); d != "" {
		t.Error(d)
	}
	s.Fail(func(*http.Request) (int, string) {
		return 429, kubetest.Status(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.", "web-0", "DisruptionBudget")
	})
	if err := c.Evict(t.Context(), "shop", "web-0", "u-1", 0); !errors.Is(err, kube.ErrBudget) {
		t.Errorf("budget: %v", err)
	}
}

func TestRecord(t *testing.T) {
	t.Parallel()
	const events = "/apis/events.k8s.io/v1/namespaces/shop/events"
	s := kubetest.New(t)
	s.Serve(events)
	e := kube.Event{
		Regarding: kube.Object{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web-0", UID: "u-1"}, Warning: true, Reason: "Evicted", Action: "Evict",
		Note: strings.Repeat("é", 600), At: time.Unix(1700000000, 123456789),
	}
	if err := client(t, s).Record(t.Context(), "node-001", e); err != nil {
		t.Fatal(err)
	}
	got := s.Requests("POST ")[0].Body
	delete(got["metadata"].(map[string]any), "resourceVersion")
	want := kubetest.Object{
		"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": map[string]any{"namespace": "shop", "name": "web-0.17979cfe3d85cd15"},
		"eventTime": "2023-11-14T22:13:20.123456Z", "reportingController": "koord-rt.dev/koordlet", "reportingInstance": "node-001", "action": "Evict",
		"reason": "Evicted", "note": strings.Repeat("é", 512), "type": "Warning",
		"regarding": map[string]any{"apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "web-0", "uid": "u-1"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestDecodeNode(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/node.json")
	if err != nil {
		t.Fatal(err)
	}
	got, err := kube.DecodeNode(raw)
	if err != nil {
		t.Fatal(err)
	}
	want := kube.Node{
		Name: "node-001", UID: "11111111-2222-3333-4444-555555555555",
		Labels:      map[string]string{"node.koordinator.sh/cpu-normalization-enabled": "true", "hami.io/vgpu-node": "gpu", "kubernetes.io/gpu-model": "A100"},
		Annotations: map[string]string{"node.koordinator.sh/cpu-normalization-ratio": "1.20"},
		Capacity:    amount.Amounts{CPU: 128000, Memory: 128 << 30, BatchCPU: 40000, BatchMemory: 32 << 30},
		Allocatable: amount.Amounts{CPU: 127500, Memory: 127 << 30, BatchCPU: 40000, BatchMemory: 32 << 30},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for name, bad := range map[string]string{
		"not JSON": `{`, "CPU that is no number": `{"status":{"capacity":{"cpu":"many","memory":"1Gi"}}}`,
	} {
		if n, err := kube.DecodeNode([]byte(bad)); err == nil {
			t.Errorf("%s: %+v", name, n)
		}
	}
	if n, err := kube.DecodeNode([]byte(`{"metadata":{"name":"new"}}`)); err != nil || n.Name != "new" {
		t.Errorf("a node that has not registered: %+v %v", n, err)
	}
}

// FuzzDecodeNode: amounts are never negative and only known keys are kept.
func FuzzDecodeNode(f *testing.F) {
	raw, err := os.ReadFile("testdata/node.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		n, err := kube.DecodeNode(raw)
		if err != nil {
			return
		}
		if n.Capacity.CPU < 0 || n.Allocatable.Memory < 0 || n.Labels["app"] != "" {
			t.Fatalf("%+v", n)
		}
	})
}
