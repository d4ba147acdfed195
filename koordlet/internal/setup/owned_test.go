// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/slo"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube/kubetest"
)

// Who overrides the cluster's strategy is told from the object that is followed; until there is one, and of one that does not tell,
// nothing is known. A field that changes its owner alone is news.
func TestOwned(t *testing.T) {
	t.Parallel()
	const path = "/apis/slo.koordinator.sh/v1alpha1/nodeslos"
	api := kubetest.New(t)
	api.Serve(path)
	client, err := kube.New(kube.Config{Server: api.URL, Trust: api.Trust})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	c := &cluster{client: client, slo: kube.NewSingle(client, kube.NodeSLOs, "node-7", slo.DecodeNodeSLO, kube.FollowOptions{}, nil)}
	if got := (&cluster{}).owned(); got != nil || c.owned() != nil {
		t.Errorf("before there is an object: %+v", got)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.slo.Run(ctx) }()
	defer func() {
		stop()
		<-done
	}()
	burst := func(manager, operation, at string) string {
		return `{"manager":"` + manager + `","operation":"` + operation + `","time":"` + at + `","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:cpuBurstStrategy":{"f:cpuBurstPercent":{}}}}}`
	}
	for _, step := range []struct {
		managed string
		want    *status.NodeSLO
	}{
		{burst("koord-manager", "Apply", "2026-05-01T12:00:00Z"), &status.NodeSLO{Generation: 12}},
		{burst("kubectl-edit", "Update", "2026-05-01T13:00:00Z"), &status.NodeSLO{Generation: 12, Overrides: []status.Override{
			{Field: "cpuBurstStrategy.cpuBurstPercent", Value: "300", By: []status.Owner{{Manager: "kubectl-edit", Time: time.Date(2026, 5, 1, 13, 0, 0, 0, time.UTC)}}},
		}}},
		{"", nil},
	} {
		api.Put(t, path, `{"metadata":{"name":"node-7","uid":"u","generation":12,"managedFields":[`+step.managed+`]},"spec":{"cpuBurstStrategy":{"cpuBurstPercent":300}}}`)
		deadline := time.Now().Add(time.Minute)
		for !cmp.Equal(step.want, c.owned()) && time.Now().Before(deadline) {
			wait, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
			<-wait.Done()
			cancel()
		}
		if d := cmp.Diff(step.want, c.owned()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
}
