// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package follow

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/koord-rt/koord-rt/cluster/slo/config"
)

func TestNote(t *testing.T) {
	t.Parallel()
	if got := note([]string{"one", "two"}); got != "one; two" {
		t.Error(got)
	}
	long := note([]string{strings.Repeat("ä", maxNote)})
	if len(long) > maxNote || !utf8.ValidString(long) || !strings.HasSuffix(long, "ä...") {
		t.Errorf("%d bytes, ends with %q", len(long), long[len(long)-8:])
	}
}

// TestReasons: dashboards and alerts know upstream's reasons.
func TestReasons(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		config.KeyColocation: "ColocationCfgUnmarshalFailed", config.KeyNormalization: "CPUNormalizationCfgUnmarshalFailed",
		config.KeyAmplification: "ResourceAmplificationCfgUnmarshalFailed", config.KeyThreshold: "SLOCfgUnmarshalFailed",
		config.KeyQOS: "SLOCfgUnmarshalFailed", config.KeyBurst: "SLOCfgUnmarshalFailed", config.KeySystem: "SLOCfgUnmarshalFailed",
		config.KeyHostApplication: "SLOCfgUnmarshalFailed",
	} {
		if got := reason(key); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}

// bench is a follower beside a client without a server.
type bench struct {
	*follower
	client client.Client
	store  *config.Store
	events *events.FakeRecorder
	object types.NamespacedName
}

// newBench is a follower that has just begun.
func newBench(c client.Client) *bench {
	b := &bench{client: c, store: &config.Store{}, events: events.NewFakeRecorder(10), object: types.NamespacedName{Namespace: "koordinator-system", Name: "slo-controller-config"}}
	b.follower = &follower{
		o: Options{Namespace: b.object.Namespace, Name: b.object.Name, Store: b.store, Problems: NewProblems()}, read: c, events: b.events,
	}
	return b
}

// put makes the ConfigMap say that; nil deletes it.
func (b *bench) put(t *testing.T, data map[string]string) {
	t.Helper()
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.object.Namespace, Name: b.object.Name}}
	if err := client.IgnoreNotFound(b.client.Delete(t.Context(), o)); err != nil {
		t.Fatal(err)
	}
	if data == nil {
		return
	}
	o.Data = data
	if err := b.client.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// look reads the ConfigMap, and returns the threshold of suppression that a NodeSLO gets by it, 0 for none, and whether nobody knows.
func (b *bench) look(t *testing.T) (percent int64, unknown bool) {
	t.Helper()
	if _, err := b.Reconcile(t.Context(), ctrl.Request{NamespacedName: b.object}); err != nil {
		t.Fatal(err)
	}
	c := b.store.Load()
	spec, _ := c.NodeSLO(config.Node{Name: "node-1"})
	if s := spec.ResourceUsedThresholdWithBE; s != nil && s.CPUSuppressThresholdPercent != nil {
		percent = *s.CPUSuppressThresholdPercent
	}
	return percent, c.Unknown(config.KeyThreshold)
}

func threshold(value string) map[string]string {
	return map[string]string{config.KeyThreshold: `{"clusterStrategy": {"cpuSuppressThresholdPercent": ` + value + `}}`}
}

// TestTwoKeys: two keys of one reason are one event that names both, for a recorder would count a second one with the first.
func TestTwoKeys(t *testing.T) {
	t.Parallel()
	b := newBench(fake.NewClientBuilder().Build())
	data := threshold(`"high"`)
	data[config.KeyBurst] = `{"clusterStrategy": {"policy": 3}}`
	data[config.KeyColocation] = `{"enable": "yes"}`
	b.put(t, data)
	b.look(t)
	var told []string
	for len(b.events.Events) > 0 {
		told = append(told, <-b.events.Events)
	}
	if len(told) != 2 || !strings.Contains(told[0], "ColocationCfgUnmarshalFailed") || !strings.Contains(told[1], config.KeyThreshold) || !strings.Contains(told[1], config.KeyBurst) {
		t.Errorf("events %q", told)
	}
	for _, key := range []string{config.KeyThreshold, config.KeyBurst, config.KeyColocation} {
		if n := testutil.ToFloat64(b.o.Problems.WithLabelValues(key)); n != 1 {
			t.Errorf("%s: %v problems", key, n)
		}
	}
}

// TestReconcile goes through what can become of the ConfigMap: who has read the key keeps what it said; who begins with a key that cannot be
// read does not know, so that what was written by it stays; one that is deleted means the defaults, which are not written.
func TestReconcile(t *testing.T) {
	t.Parallel()
	b := newBench(fake.NewClientBuilder().Build())
	step := func(name string, data map[string]string, percent int64, unknown bool, problems int) {
		t.Helper()
		b.put(t, data)
		if have, not := b.look(t); have != percent || not != unknown {
			t.Errorf("%s: threshold %d, unknown %t, want %d, %t", name, have, not, percent, unknown)
		}
		if n := testutil.ToFloat64(b.o.Problems.WithLabelValues(config.KeyThreshold)); int(n) != problems {
			t.Errorf("%s: %v problems, want %d", name, n, problems)
		}
		told := []string{}
		for len(b.events.Events) > 0 {
			told = append(told, <-b.events.Events)
		}
		if len(told) != problems || problems > 0 && (!strings.Contains(told[0], "SLOCfgUnmarshalFailed") || !strings.Contains(told[0], config.KeyThreshold) || !strings.Contains(told[0], "line 1")) {
			t.Errorf("%s: events %q", name, told)
		}
	}
	step("not there", nil, 0, false, 0)
	step("made", threshold("65"), 65, false, 0)
	step("broken", threshold(`"high"`), 65, false, 1)
	seen := b.store.Load()
	b.look(t)
	if len(b.events.Events) > 0 || b.store.Load() != seen {
		t.Error("what has not changed is read again")
	}
	b = newBench(b.client)
	step("restarted while broken", threshold(`"high"`), 0, true, 1)
	step("broken otherwise", threshold("650"), 0, true, 1)
	step("repaired", threshold("55"), 55, false, 0)
	step("deleted", nil, 0, false, 0)
	b = newBench(b.client)
	step("restarted while broken once more", threshold("{"), 0, true, 1)
	step("deleted while broken", nil, 0, false, 0)
}
