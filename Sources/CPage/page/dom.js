const main = document.getElementById("main");
