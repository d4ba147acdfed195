// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cluster

import (
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const hookText = `
kind: MutatingWebhookConfiguration
webhooks:
- name: a
  clientConfig: {service: {name: s, namespace: n, path: /mutate-pod, port: 443}}
- name: b
  clientConfig: {service: {name: s, namespace: n, path: /mutate-node}}
`

// A webhook is called by URL with its Service's path, and counts as trusted when every one has an authority.
func TestCallByURL(t *testing.T) {
	t.Parallel()
	o, err := ParseObject([]byte(hookText))
	if err != nil {
		t.Fatal(err)
	}
	if n := callByURL(o, "127.0.0.1:9876"); n != 2 {
		t.Errorf("%d webhooks", n)
	}
	for i, want := range []string{"https://127.0.0.1:9876/mutate-pod", "https://127.0.0.1:9876/mutate-node"} {
		if got := o.Str("webhooks", i, "clientConfig", "url"); got != want || o.At("webhooks", i, "clientConfig", "service") != nil {
			t.Errorf("webhook %d: %s", i, o.Compact("webhooks", i))
		}
	}
	for i := range 2 {
		if err := trusted(o); err == nil || !strings.Contains(err.Error(), "no caBundle") {
			t.Errorf("with %d authorities: %v", i, err)
		}
		o.At("webhooks", i, "clientConfig").(map[string]any)["caBundle"] = "Q0E="
	}
	if err := trusted(o); err != nil {
		t.Error(err)
	}
	if n := callByURL(Object{"kind": "Service"}, "x"); n != 0 || trusted(Object{}) == nil {
		t.Errorf("a Service has %d webhooks", n)
	}
}

// Keys are changed in the ConfigMap that is there, and else in a new one, which has no key that is removed.
func TestTellManager(t *testing.T) {
	t.Parallel()
	var seen []string
	there := true
	c := &Cluster{admin: plain(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		seen = append(seen, r.Method+" "+r.URL.Path+" "+string(body))
		if !there && r.Method == http.MethodPatch {
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, `{"kind":"Status","reason":"NotFound"}`)
			return
		}
		w.Write(body)
	})}
	for range 2 {
		if err := c.TellManager(t.Context(), map[string]string{"a": "1", "b": ""}); err != nil {
			t.Fatal(err)
		}
		there = false
	}
	const dir = "/api/v1/namespaces/koordinator-system/configmaps"
	want := []string{
		"PATCH " + dir + `/slo-controller-config {"data":{"a":"1","b":null}}`, "PATCH " + dir + `/slo-controller-config {"data":{"a":"1","b":null}}`,
		"POST " + dir + ` {"data":{"a":"1"},"metadata":{"name":"slo-controller-config"}}`,
	}
	if got, _ := json.Marshal(seen); len(seen) != 3 || seen[0] != want[0] || seen[1] != want[1] || seen[2] != want[2] {
		t.Errorf("asked %s", got)
	}
}

// Every role of koord-manager is installed, and koordlet's own is not put in the place of one by which it is another user there, and which has the same name.
func TestManagerRoles(t *testing.T) {
	t.Parallel()
	roles, err := managerRoles("../../../packaging/manifests")
	if err != nil {
		t.Fatal(err)
	}
	for i := range roles {
		roles[i] = filepath.Base(roles[i])
	}
	if !slices.Contains(roles, "rbac-slo.yaml") || !slices.Contains(roles, "rbac-webhook.yaml") || slices.Contains(roles, "rbac-koordlet.yaml") {
		t.Errorf("%q", roles)
	}
	if roles, err := managerRoles(t.TempDir()); err == nil {
		t.Errorf("an empty folder has %q", roles)
	}
}

func TestManagerFlagsNeedAnAddress(t *testing.T) {
	t.Parallel()
	ca, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{Dir: t.TempDir(), ca: ca}
	flags, err := c.ManagerFlags("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3")
	if err != nil || !strings.Contains(strings.Join(flags, " "), "--webhook-host=127.0.0.1 --webhook-port=3 --webhook-cert-hosts=127.0.0.1") {
		t.Errorf("%q, %v", flags, err)
	}
	if flags, err := c.ManagerFlags("", "", "9876"); err == nil {
		t.Errorf("a port alone makes %q", flags)
	}
}
