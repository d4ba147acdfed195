// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cluster

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
)

// agentServer answers as the API server does once it knows koordlet's rights, which takes two questions.
func agentServer(t *testing.T, seen *[]string) *Cluster {
	t.Helper()
	asked := 0
	return &Cluster{Dir: t.TempDir(), URL: "https://127.0.0.1:1", CA: "ca.crt", admin: plain(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		var o Object
		_ = json.Unmarshal(body, &o) // a question without a body is none
		*seen = append(*seen, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+o.Compact("spec")))
		switch r.URL.Path {
		case "/api/v1/nodes/node0":
			_, _ = io.WriteString(w, `{"metadata":{"name":"node0","uid":"u-1"}}`)
		case "/api/v1/nodes/node1":
			w.WriteHeader(http.StatusNotFound)
		case "/api/v1/namespaces/koordinator-system/serviceaccounts/koordlet/token":
			_, _ = io.WriteString(w, `{"status":{"token":"ey.bound"}}`)
		case "/apis/authorization.k8s.io/v1/subjectaccessreviews":
			asked++
			_ = json.NewEncoder(w).Encode(map[string]any{"status": map[string]any{"allowed": asked > 2}})
		default:
			if r.Method == http.MethodGet { // discovery
				_, _ = io.WriteString(w, `{"resources":[{"name":"serviceaccounts","kind":"ServiceAccount","namespaced":true},{"name":"clusterroles","kind":"ClusterRole"},
					{"name":"clusterrolebindings","kind":"ClusterRoleBinding"},{"name":"validatingadmissionpolicies","kind":"ValidatingAdmissionPolicy"},
					{"name":"validatingadmissionpolicybindings","kind":"ValidatingAdmissionPolicyBinding"}]}`)
				return
			}
			_, _ = w.Write(body)
		}
	})}
}

// What is installed is the account, the role, its binding and the policy, and their effect is waited for.
func TestInstallAgent(t *testing.T) {
	t.Parallel()
	var seen []string
	c := agentServer(t, &seen)
	if err := c.InstallAgent(t.Context(), "../../../packaging/manifests"); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(seen, "\n")
	for _, want := range []string{
		"PATCH /api/v1/namespaces/koordinator-system/serviceaccounts/koordlet", "/clusterroles/koordlet", "/clusterrolebindings/koordlet",
		"/validatingadmissionpolicies/koordlet-own-node.koord-rt.dev", "/validatingadmissionpolicybindings/koordlet-own-node.koord-rt.dev",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing:\n%s", want, text)
		}
	}
	if n := strings.Count(text, "subjectaccessreviews"); n != 3 || !strings.Contains(text, AgentUser) {
		t.Errorf("asked %d times for the rights:\n%s", n, text)
	}
	if err := c.InstallAgent(t.Context(), t.TempDir()); err == nil {
		t.Error("an empty folder is installed")
	}
}

// The token is bound to the Node by its UID, and the kubeconfig names its file.
func TestAgentKubeconfig(t *testing.T) {
	t.Parallel()
	var seen []string
	c := agentServer(t, &seen)
	kubeconfig, tokenFile, err := c.AgentKubeconfig(t.Context(), "node0")
	if err != nil {
		t.Fatal(err)
	}
	const spec = `{"boundObjectRef":{"apiVersion":"v1","kind":"Node","name":"node0","uid":"u-1"},"expirationSeconds":7200}`
	if len(seen) != 2 || !strings.HasSuffix(seen[1], spec) {
		t.Errorf("asked %q", seen)
	}
	token, err := os.ReadFile(tokenFile)
	if err != nil || string(token) != "ey.bound" {
		t.Errorf("token %q, %v", token, err)
	}
	text, err := os.ReadFile(kubeconfig)
	if err != nil || !strings.Contains(string(text), `"tokenFile":"`+tokenFile+`"`) || strings.Contains(string(text), "client-certificate") {
		t.Errorf("%v: %s", err, text)
	}
	if _, _, err := c.AgentKubeconfig(t.Context(), "node1"); err == nil {
		t.Error("a token of a node that is not there")
	}
	if _, tokenFile, err = c.AgentKubeconfig(t.Context(), ""); err != nil || tokenFile == "" || strings.Contains(seen[len(seen)-1], "boundObjectRef") {
		t.Errorf("a kubeconfig of no node: %v, %q", err, seen[len(seen)-1])
	}
	if token, err := c.AgentToken(t.Context(), nil); err != nil || token == "" || strings.Contains(seen[len(seen)-1], "boundObjectRef") {
		t.Errorf("a token of no node: %v, %q", err, seen[len(seen)-1])
	}
}

const roleText = `
kind: ServiceAccount
---
kind: ClusterRole
rules:
- {apiGroups: [""], resources: [pods, nodes], verbs: [list, watch]}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create]}
---
kind: Role
rules:
- {apiGroups: [""], resources: [pods], verbs: [list]}
- {apiGroups: [""], resources: [secrets], resourceNames: [certs, more], verbs: [get]}
`

func TestRights(t *testing.T) {
	t.Parallel()
	got, err := Rights(roleText)
	want := []string{" get secrets certs", " get secrets more", " list nodes", " list pods", " watch nodes", " watch pods", "events.k8s.io create events"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := Rights("rules: text"); err == nil {
		t.Errorf("no role grants %q", got)
	}
}

// What is granted is used or excused, and an excuse is of what is granted; one that is used all the same is no error.
func TestCompare(t *testing.T) {
	t.Parallel()
	granted := []string{"a get x", "a list x", "b create y"}
	used := map[string]bool{"a get x": true, "c get z": true}
	if got := Compare(granted, used, map[string]string{"a list x": "rarely", "b create y": "rarely", "a get x": "rarely"}); len(got) != 0 {
		t.Errorf("%q", got)
	}
	got := Compare(granted, used, map[string]string{"a list x": "", "c get z": "rarely"})
	want := []string{`"a list x" is granted, and nobody uses it`, `"b create y" is granted, and nobody uses it`, `"c get z" is excused, and not granted`}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
