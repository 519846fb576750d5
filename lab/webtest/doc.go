// Package webtest contains tests whose dependencies no importer of idem should have to download:
// another parser of structured fields, HTTP routers, and a browser that operates the pages of
// example/orders and of idem ui.
//
// It is a separate module and contains only tests and their servers.
package webtest
