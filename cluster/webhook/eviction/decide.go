// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package eviction

import (
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// ExtraNode is where the API server says on which node a token lives: of a pod's token the pod's node, of a token bound to a
// Node that node. Kubernetes 1.30 and later.
const ExtraNode = "authentication.kubernetes.io/node-name"

// NodeOf is the node of whoever shows a token, "" when the token tells none.
func NodeOf(user *authenticationv1.UserInfo) string {
	if values := user.Extra[ExtraNode]; len(values) == 1 {
		return values[0]
	}
	return ""
}

// Ask is an agent that wants a pod evicted.
type Ask struct {
	// Agent is its name, Node where its token lives, "" when that is not known.
	Agent, Node string
	// Namespace, Name and UID are the pod that it means; UID is "" when it does not say.
	Namespace, Name, UID string
}

// Pod is the pod that stands under the name now; nil when there is none.
type Pod struct{ UID, Node string }

// Check says why an eviction is refused, "" when it is not. An agent may evict the pods of its own node, and must say which one
// it means: under the same name another pod can stand on another node a moment later.
//
// Example: the agent of node a, pod of node a: granted; pod of node b: refused; no pod of that UID any more: granted, and the
// API server answers that there is none.
func Check(a Ask, p *Pod) string {
	switch {
	case a.Node == "":
		return fmt.Sprintf("%s evicts pods of its own node only, and its token does not say which that is: run it as a pod on Kubernetes 1.30 "+
			"or later, or give it a token bound to its node (kubectl create token --bound-object-kind Node --bound-object-name NODE, of kubectl 1.33 or later)", a.Agent)
	case a.UID == "":
		return "an agent must say which pod it means: set deleteOptions.preconditions.uid to the pod's metadata.uid"
	case p == nil || p.UID != a.UID:
		return "" // the precondition fails, whatever stands there now
	case p.Node == a.Node:
		return ""
	case p.Node == "":
		return fmt.Sprintf("pod %s/%s is on no node yet, and the agent of node %s evicts pods of its own node only", a.Namespace, a.Name, a.Node)
	}
	return fmt.Sprintf("pod %s/%s is on node %s, and the agent of node %s evicts pods of its own node only: ask the agent of node %s, "+
		"or evict it as another user", a.Namespace, a.Name, p.Node, a.Node, p.Node)
}
