// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// AgentUser is who koordlet is on a node: the service account of packaging/manifests.
const AgentUser = "system:serviceaccount:" + ManagerNamespace + ":koordlet"

// agentToken is how long a token of that account is good: longer than any test.
const agentToken = 2 * time.Hour

// InstallAgent applies what a folder such as packaging/manifests gives koordlet: its account, its rights, and the policy that holds it to
// its node. The namespace must be there. It waits until the API server knows the rights; the policy acts a moment later.
func (c *Cluster) InstallAgent(ctx context.Context, dir string) error {
	for _, name := range []string{"rbac-koordlet.yaml", "policy-koordlet.yaml"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("install koordlet: %w", err)
		}
		if _, err := c.admin.Apply(ctx, "lab", false, text); err != nil {
			return fmt.Errorf("apply %s: %w", name, err)
		}
	}
	review := Object{"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": map[string]any{
		"user": AgentUser, "groups": []string{"system:serviceaccounts", "system:serviceaccounts:" + ManagerNamespace, "system:authenticated"},
		"resourceAttributes": map[string]any{"verb": "create", "resource": "pods", "subresource": "eviction"},
	}}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return poll(ctx, "koordlet's rights", func(ctx context.Context) error {
		o, err := c.admin.Create(ctx, "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
		if allowed, _ := o.At("status", "allowed").(bool); err == nil && !allowed {
			err = errors.New("it may not evict pods")
		}
		return err
	})
}

// AgentToken is a token of koordlet's account that is bound to an object, a Node or a Pod; nil: to none.
func (c *Cluster) AgentToken(ctx context.Context, to map[string]any) (string, error) {
	spec := map[string]any{"expirationSeconds": int(agentToken / time.Second)}
	if to != nil {
		spec["boundObjectRef"] = to
	}
	o, err := c.admin.Create(ctx, "/api/v1/namespaces/"+ManagerNamespace+"/serviceaccounts/koordlet/token",
		Object{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
	if err != nil {
		return "", fmt.Errorf("ask for koordlet's token: %w", err)
	}
	token := o.Str("status", "token")
	if token == "" {
		return "", errors.New("ask for koordlet's token: the answer has none")
	}
	return token, nil
}

// AgentKubeconfig writes a token of koordlet's account that is bound to a Node, "" to none, and a kubeconfig that names it.
func (c *Cluster) AgentKubeconfig(ctx context.Context, node string) (kubeconfig, tokenFile string, err error) {
	var to map[string]any
	if node != "" {
		o, err := c.admin.Get(ctx, "/api/v1/nodes/"+node)
		if err != nil {
			return "", "", fmt.Errorf("bind koordlet's token: %w", err)
		}
		to = map[string]any{"apiVersion": "v1", "kind": "Node", "name": node, "uid": o.Str("metadata", "uid")}
	}
	token, err := c.AgentToken(ctx, to)
	if err != nil {
		return "", "", err
	}
	tokenFile, kubeconfig = c.file("koordlet-"+node+".token"), c.file("koordlet-"+node+".kubeconfig")
	if err := os.WriteFile(tokenFile, []byte(token), 0o600); err != nil {
		return "", "", fmt.Errorf("write koordlet's token: %w", err)
	}
	return kubeconfig, tokenFile, c.writeKubeconfig(kubeconfig, map[string]any{"tokenFile": tokenFile})
}

// Rights are what the roles in a YAML text grant, each "group verb resource", in order; with the name behind it where the rule names objects.
func Rights(text string) ([]string, error) {
	var out []string
	for doc := range strings.SplitSeq("\n"+text, "\n---") {
		var role struct {
			Rules []struct{ APIGroups, Resources, ResourceNames, Verbs []string }
		}
		if err := yaml.Unmarshal([]byte(doc), &role); err != nil {
			return nil, fmt.Errorf("read a role: %w", err)
		}
		for _, r := range role.Rules {
			for _, group := range r.APIGroups {
				for _, resource := range r.Resources {
					for _, verb := range r.Verbs {
						right := group + " " + verb + " " + resource
						if len(r.ResourceNames) == 0 {
							out = append(out, right)
						}
						for _, name := range r.ResourceNames {
							out = append(out, right+" "+name)
						}
					}
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Compare says what is wrong with rights: those that are granted and neither used nor excused, and excuses of what is not granted. An
// excuse is a right with the reason why it may stay unused.
func Compare(granted []string, used map[string]bool, excused map[string]string) []string {
	var out []string
	for _, right := range granted {
		if !used[right] && excused[right] == "" {
			out = append(out, fmt.Sprintf("%q is granted, and nobody uses it", right))
		}
	}
	for right := range excused {
		if !slices.Contains(granted, right) {
			out = append(out, fmt.Sprintf("%q is excused, and not granted", right))
		}
	}
	slices.Sort(out)
	return out
}
