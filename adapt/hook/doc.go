// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package hook speaks the messages of Koordinator's RuntimeHookService (apis/runtime/v1alpha1/api.proto of 1.8.0): the
// seven calls that a runtime proxy makes to a hook server such as koordlet.
//
// Inputs are a pod's or container's values and a server's answer in bytes; outputs are the request's bytes and a
// [Change]: what the answer asks for beyond what was sent, as a plan owned by "hook:<server>". Sending is adapt/unary's.
// It may import model and api only, and none of Koordinator's generated types.
package hook
